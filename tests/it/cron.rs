//! Two hosts, each with Debian's cron, one lock server, the same crontab on both.
//!
//! A host is a process tree with its own name, `/var/spool/cron/crontabs`, `/etc/crontab`,
//! `/run` and `sendmail`. Cron starts its jobs when a minute begins, so this test takes as
//! long as it takes until that has happened twice.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{distlock, is_installed, repository, within};

/// How many minutes are watched.
const MINUTES: usize = 2;

/// The lines of each crontab; see [`lines`].
const LOCKS: [&str; 3] = ["loud", "quiet", "skewed"];

/// Ends a process of ours, by its id, however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Host {
    folder: PathBuf,
    name: &'static str,
    cron: Running,
}

/// Where everything is; removed at the end.
struct Site {
    temporary: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["data"].iter().chain(&LOCKS) {
            fs::create_dir(temporary.path().join(name)).unwrap();
        }
        fs::write(temporary.path().join("data/precious"), "42\n").unwrap();
        Self { temporary }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    fn server(&self) -> String {
        format!("redis+unix://{}", self.path("redis.sock").display())
    }

    fn start_redis(&self) -> Running {
        let redis = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(self.path("redis.sock"))
            .arg("--dir")
            .arg(self.temporary.path())
            .stdout(fs::File::create(self.path("redis.log")).unwrap())
            .stdin(Stdio::null())
            .spawn();
        let redis = Running(redis.unwrap());
        let socket = self.path("redis.sock");
        let is_up = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        assert!(within(Duration::from_secs(10), is_up), "no redis-server");
        redis
    }

    /// What a host's crontab has: each line tells its exit status to a file of its own.
    fn crontab(&self, host: &Path, late: bool) -> String {
        let archive = |lock: &str| {
            format!(
                "{} {} {} {}",
                repository("examples/archive.sh").display(),
                self.path("data").display(),
                self.path(lock).display(),
                self.path(&format!("{lock}.log")).display()
            )
        };
        let done = |lock: &str| {
            let statuses = host.join("statuses").join(lock);
            format!("echo $? >>{}", statuses.display())
        };
        let run = format!("{} run --ttl 30s --name", distlock());
        // The first two hold their lock for as long as the other host may need to come; the
        // third is done at once, and the other host comes after that, or after ten seconds.
        let pause = if late {
            let [other, own] = ["one", "two"].map(|host| {
                self.path(host)
                    .join("statuses/skewed")
                    .display()
                    .to_string()
            });
            format!(
                "touch {other} {own}; for i in $(seq 100); do \
                 [ $(wc -l <{other}) -gt $(wc -l <{own}) ] && break; sleep 0.1; done; "
            )
        } else {
            String::new()
        };
        format!(
            "MAILTO=root\nDISTLOCK_SERVER={server}\n\
             * * * * * {run} loud -c '{loud} && sleep 5'; {loud_done}\n\
             * * * * * {run} quiet -q -c '{quiet} && sleep 5'; {quiet_done}\n\
             * * * * * {pause}{run} skewed -q --hold-at-least 20s -- {skewed}; {skewed_done}\n",
            server = self.server(),
            loud = archive("loud"),
            quiet = archive("quiet"),
            skewed = archive("skewed"),
            loud_done = done("loud"),
            quiet_done = done("quiet"),
            skewed_done = done("skewed"),
        )
    }

    /// Starts cron on a host of its own.
    fn start_host(&self, name: &'static str, late: bool) -> Host {
        let folder = self.path(name);
        for part in ["spool", "run", "cron.d", "sbin", "mail", "statuses"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("crontab"), "").unwrap();
        fs::copy("/usr/sbin/cron", folder.join("cron")).unwrap();
        let mode = |mode| fs::Permissions::from_mode(mode);
        // Cron reads a crontab only if nobody else could have written it.
        fs::write(folder.join("spool/root"), self.crontab(&folder, late)).unwrap();
        fs::set_permissions(folder.join("spool/root"), mode(0o600)).unwrap();
        let mail = folder.join("mail");
        let sendmail = format!(
            "#!/bin/sh\ncat >{0}/$$.part && mv {0}/$$.part {0}/$$.mail\n",
            mail.display()
        );
        fs::write(folder.join("sbin/sendmail"), sendmail).unwrap();
        fs::set_permissions(folder.join("sbin/sendmail"), mode(0o755)).unwrap();
        let setup = "set -e; cd \"$1\"; hostname \"$2\"
            mount --bind spool /var/spool/cron/crontabs
            mount --bind crontab /etc/crontab
            mount --bind cron.d /etc/cron.d
            mount --bind run /run
            cron=$PWD/cron
            mount --bind sbin /usr/sbin
            exec \"$cron\" -f";
        // Neither unshare(1) here nor the shell forks: the process is cron in the end.
        let cron = Command::new("unshare")
            .args([
                "--mount",
                "--uts",
                "--propagation",
                "private",
                "sh",
                "-c",
                setup,
                "sh",
            ])
            .arg(&folder)
            .arg(name)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::null())
            .stdout(fs::File::create(folder.join("cron.log")).unwrap())
            .stderr(fs::File::create(folder.join("cron.err")).unwrap())
            .spawn()
            .unwrap();
        let cron = Running(cron);
        Host { folder, name, cron }
    }
}

impl Host {
    /// The exit statuses of one line so far.
    fn statuses(&self, lock: &str) -> Vec<i32> {
        let statuses = fs::read_to_string(self.folder.join("statuses").join(lock));
        let statuses = statuses.unwrap_or_default();
        let complete = statuses.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn mails(&self) -> Vec<String> {
        fs::read_dir(self.folder.join("mail"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "mail"))
            .map(|path| fs::read_to_string(path).unwrap())
            .collect()
    }

    fn is_up(&self) -> bool {
        self.folder.join("run/crond.pid").exists()
    }

    /// Whether a job of cron's, or the mail of one, is not done yet.
    fn is_busy(&self) -> bool {
        let pid = self.cron.0.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        !children.unwrap_or_default().trim().is_empty()
    }

    fn has_done(&self, minutes: usize) -> bool {
        LOCKS
            .iter()
            .all(|lock| self.statuses(lock).len() >= minutes)
    }

    fn tell(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let statuses: BTreeMap<_, _> = LOCKS.map(|lock| (lock, self.statuses(lock))).into();
        format!(
            "{}: {statuses:?}\n{}{}{:?}",
            self.name,
            read("cron.log"),
            read("cron.err"),
            self.mails()
        )
    }
}

/// Whether the test can run here; the reason is printed if not.
fn can_run() -> bool {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can start cron");
        return false;
    }
    if !["cron", "redis-server", "unshare"]
        .iter()
        .all(|name| is_installed(name))
    {
        return false;
    }
    let unshared = Command::new("unshare")
        .args(["--mount", "--uts", "--propagation", "private"])
        .args(["sh", "-c", "hostname one && mount --bind /run /run"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if !unshared.status.success() {
        let why = String::from_utf8_lossy(&unshared.stderr);
        println!("skipped: may not make namespaces: {}", why.trim());
        return false;
    }
    true
}

/// Both hosts must see the same minutes: not one before the turn of one and one after it.
fn wait_for_the_middle_of_a_minute() {
    let second = || {
        let now = distlock::clock::ServerTime::of_this_host().0;
        now / 1_000_000 % 60
    };
    let in_the_middle = || (2..50).contains(&second());
    assert!(within(Duration::from_secs(20), in_the_middle));
}

#[test]
fn two_hosts_with_the_same_crontab_run_each_job_once_a_minute() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let _redis = site.start_redis();
    wait_for_the_middle_of_a_minute();
    let hosts = [site.start_host("one", false), site.start_host("two", true)];
    let tell = || hosts.iter().map(Host::tell).collect::<String>();
    let up = within(Duration::from_secs(8), || hosts.iter().all(Host::is_up));
    assert!(up, "cron does not start:\n{}", tell());

    let limit = Duration::from_secs(60) * u32::try_from(MINUTES + 1).unwrap();
    let done = within(limit, || hosts.iter().all(|host| host.has_done(MINUTES)));
    assert!(done, "cron has not run its jobs:\n{}", tell());
    // Mail is sent when a job is done.
    let idle = within(Duration::from_secs(20), || !hosts.iter().any(Host::is_busy));
    assert!(idle, "a job does not end:\n{}", tell());

    for lock in LOCKS {
        let [one, two] = [0, 1].map(|host: usize| hosts[host].statuses(lock));
        for (one, two) in one.iter().zip(&two) {
            let mut both = [one, two];
            both.sort();
            assert_eq!(both, [&0, &75], "{lock}:\n{}", tell());
        }
        let log = fs::read_to_string(site.path(&format!("{lock}.log"))).unwrap();
        assert_once_a_minute(&log);
    }
    // One that comes when the other host is done already finds the lock taken still.
    assert_eq!(hosts[1].statuses("skewed"), [75; MINUTES], "{}", tell());

    // One mail of one line from each refused run of the line without -q, and no other.
    for (host, other) in [(&hosts[0], "two"), (&hosts[1], "one")] {
        let refusals = host
            .statuses("loud")
            .iter()
            .filter(|status| **status == 75)
            .count();
        let mails = host.mails();
        assert_eq!(mails.len(), refusals, "{}", tell());
        for mail in &mails {
            let (_, body) = mail.split_once("\n\n").unwrap();
            assert_eq!(body.trim_end().lines().count(), 1, "{mail}");
            assert!(body.starts_with("distlock: loud: held by "), "{mail}");
            assert!(body.contains(&format!("@{other} ")), "{mail}");
        }
    }
}

/// Each line of the archive's log is of another minute, with a higher fencing token.
fn assert_once_a_minute(log: &str) {
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), MINUTES, "{log}");
    let minute = |line: &str| line[..16].to_owned();
    let fence = |line: &str| -> u64 {
        let after = line.split_once("fence=").unwrap().1;
        after.split(' ').next().unwrap().parse().unwrap()
    };
    for pair in lines.windows(2) {
        assert_ne!(minute(pair[0]), minute(pair[1]), "{log}");
        assert!(fence(pair[0]) < fence(pair[1]), "{log}");
    }
}
