//! The recipes in examples/: each is parsed, and run with locks in a folder of the test.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{distlock, hold, is_installed, program, repository};

/// A folder with something to archive, a place for archives, and one for locks.
struct Folder {
    temporary: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["data", "archive", "locks", "bin"] {
            fs::create_dir(temporary.path().join(name)).unwrap();
        }
        fs::write(temporary.path().join("data/precious"), "42\n").unwrap();
        Self { temporary }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    fn server(&self) -> String {
        format!("file://{}", self.path("locks").display())
    }

    /// A program whose locks are in this folder and that finds the examples.
    fn program(&self, name: impl AsRef<Path>) -> Command {
        for script in ["archive.sh", "sync-mirror.sh"] {
            let example = repository("examples").join(script);
            let target = if example.exists() {
                example
            } else {
                "/bin/true".into()
            };
            let _ = symlink(target, self.path("bin").join(script));
        }
        let mut command = program(name.as_ref());
        let own = Path::new(distlock()).parent().unwrap();
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            self.path("bin").display(),
            own.display()
        );
        command
            .env("PATH", path)
            .env("DISTLOCK_SERVER", self.server())
            .current_dir(self.temporary.path())
            .stdin(Stdio::null());
        command
    }

    /// A line of an example, with this folder's paths instead of the system's.
    fn here(&self, line: &str) -> String {
        line.replace("/usr/local/bin/distlock", distlock())
            .replace(
                "/usr/local/bin/",
                &format!("{}/", repository("examples").display()),
            )
            .replace("/srv/data", &self.path("data").display().to_string())
            .replace("/srv/archive", &self.path("archive").display().to_string())
            .replace(
                "/var/log/",
                &format!("{}/", self.temporary.path().display()),
            )
    }

    fn archives(&self) -> usize {
        fs::read_dir(self.path("archive")).unwrap().count()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("archive.log")).unwrap_or_default()
    }
}

fn examples(extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(repository("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

#[track_caller]
fn assert_ends(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The jobs of examples/crontab, without their times.
fn jobs() -> Vec<String> {
    let crontab = fs::read_to_string(repository("examples/crontab")).unwrap();
    let is_job = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit() || c == '*');
    let command = |line: &str| {
        let mut rest = line;
        for _ in 0..5 {
            rest = rest.trim_start().split_once(' ').unwrap().1;
        }
        rest.trim().to_owned()
    };
    crontab.lines().filter(is_job).map(command).collect()
}

#[test]
fn scripts_are_executable_and_parse() {
    for script in examples("sh") {
        let mode = fs::metadata(&script).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{}", script.display());
        let first = fs::read_to_string(&script).unwrap();
        let shell = first.lines().next().unwrap().strip_prefix("#!").unwrap();
        for shell in [shell, "/bin/bash"] {
            let output = program(shell).arg("-n").arg(&script).output().unwrap();
            assert_ends(&output, 0);
            assert_eq!(stderr(&output), "");
        }
    }
}

#[test]
fn the_archive_can_be_read_and_its_log_has_the_fencing_token() {
    let folder = Folder::new();
    let output = folder
        .program(distlock())
        .args([
            "run",
            "--name",
            "archive",
            "--",
            "archive.sh",
            "data",
            "archive",
            "archive.log",
        ])
        .output()
        .unwrap();
    assert_ends(&output, 0);
    assert_eq!((stderr(&output).as_str(), output.stdout.len()), ("", 0));
    assert!(
        folder.log().contains(" fence=1 archive/data-"),
        "{}",
        folder.log()
    );
    assert_eq!(folder.archives(), 1);

    let missing = folder
        .program(repository("examples/archive.sh"))
        .args(["nothing", "archive", "archive.log"])
        .output()
        .unwrap();
    assert!(!missing.status.success());
    assert_eq!(folder.archives(), 1);
    assert_eq!(folder.log().lines().count(), 1);
}

#[test]
fn the_crontab_is_accepted_and_its_lines_need_no_percent_sign() {
    let crontab = repository("examples/crontab");
    let text = fs::read_to_string(&crontab).unwrap();
    let active = text.lines().filter(|line| !line.starts_with('#'));
    assert!(active.clone().all(|line| !line.contains('%')));
    assert_eq!(jobs().len(), 2);
    if !is_installed("crontab") {
        return;
    }
    // -n: a dry run; cron itself says whether it understands the file.
    let output = program("crontab").arg("-n").arg(crontab).output().unwrap();
    if stderr(&output).contains("invalid option") {
        println!("skipped: this crontab has no dry run");
        return;
    }
    assert_ends(&output, 0);
}

#[test]
fn the_lines_of_the_crontab_run_once_and_are_silent() {
    let folder = Folder::new();
    for job in jobs() {
        let line = folder.here(&job);
        let run = || {
            folder
                .program("/bin/sh")
                .arg("-c")
                .arg(&line)
                .output()
                .unwrap()
        };
        let output = run();
        assert_ends(&output, 0);
        assert_eq!(
            (stderr(&output).as_str(), output.stdout.len()),
            ("", 0),
            "{line}"
        );
        if line.contains("--hold-at-least") {
            // The next host, half a second later.
            let output = run();
            assert_ends(&output, 75);
            assert_eq!(stderr(&output), "", "{line}");
        }
    }
    assert_eq!(folder.log().lines().count(), 1);
    assert_eq!(folder.archives(), 1);
}

#[test]
fn the_configuration_is_accepted_and_its_tables_count() {
    let folder = Folder::new();
    let text = fs::read_to_string(repository("examples/distlock.toml")).unwrap();
    let password = folder.path("password");
    fs::write(&password, "secret\n").unwrap();
    let text = text.replace("/etc/distlock.pass", &password.display().to_string());
    let config = folder.path("distlock.toml");
    fs::write(&config, text).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = folder.program(distlock());
        command.env("DISTLOCK_CONFIG", &config).args(arguments);
        command.output().unwrap()
    };
    for name in ["archive", "sync", "another"] {
        let output = run(&["run", "--name", name, "--", "true"]);
        assert_ends(&output, 0);
        assert_eq!(stderr(&output), "");
    }
    // hold-at-least stands in the table of one of them only.
    assert_ends(&run(&["status", "-q", "archive"]), 0);
    assert_ends(&run(&["status", "-q", "sync"]), 1);
}

#[test]
fn the_units_are_accepted_by_systemd_and_the_service_runs() {
    let folder = Folder::new();
    let unit = fs::read_to_string(repository("examples/archive.service")).unwrap();
    let unit = folder.here(&unit);
    let service = folder.path("archive.service");
    let timer = folder.path("archive.timer");
    fs::write(&service, &unit).unwrap();
    fs::copy(repository("examples/archive.timer"), &timer).unwrap();
    if is_installed("systemd-analyze") {
        let output = program("systemd-analyze")
            .args(["verify", "--man=no"])
            .args([&service, &timer])
            .output()
            .unwrap();
        assert_ends(&output, 0);
        assert_eq!(stderr(&output), "");
    }
    let mut lines = unit.lines();
    let line = lines
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    let output = folder
        .program("/bin/sh")
        .arg("-c")
        .arg(line)
        .output()
        .unwrap();
    assert_ends(&output, 0);
    assert_eq!(folder.log().lines().count(), 1);
}

#[test]
fn a_pipeline_keeps_its_data_and_its_exit_status() {
    let folder = Folder::new();
    let run = || {
        folder
            .program("/bin/sh")
            .arg("-c")
            .arg("printf 'b\\na\\nb\\n' | \"$0\" sort out.gz")
            .arg(repository("examples/pipeline.sh"))
            .output()
            .unwrap()
    };
    let held = hold(&folder.path("locks"), "sort");
    let output = run();
    assert_ends(&output, 75);
    assert!(
        stderr(&output).contains("held by somebody@elsewhere"),
        "{output:?}"
    );
    assert!(!folder.path("out.gz").exists() && !folder.path("out.gz.part").exists());
    drop(held);
    let output = run();
    assert_ends(&output, 0);
    assert_eq!((stderr(&output).as_str(), output.stdout.len()), ("", 0));
    let unpacked = program("gzip")
        .arg("-dc")
        .arg(folder.path("out.gz"))
        .output()
        .unwrap();
    assert_eq!(unpacked.stdout, b"a\nb\n");
}

#[test]
fn a_step_of_ci_says_what_its_end_means() {
    let folder = Folder::new();
    let step = |command: &[&str]| {
        let mut step = folder.program(repository("examples/ci-step.sh"));
        step.env("PATIENCE", "100ms").arg("deploy").args(command);
        step.output().unwrap()
    };
    let output = step(&["echo", "deployed"]);
    assert_ends(&output, 0);
    assert_eq!(
        (output.stdout.as_slice(), stderr(&output).as_str()),
        (&b"deployed\n"[..], "")
    );
    let output = step(&["sh", "-c", "exit 3"]);
    assert_ends(&output, 3);
    assert!(stderr(&output).contains("failed with 3"), "{output:?}");
    let held = hold(&folder.path("locks"), "deploy");
    let output = step(&["true"]);
    assert_ends(&output, 75);
    assert!(stderr(&output).contains("another pipeline"), "{output:?}");
    drop(held);
    fs::remove_dir_all(folder.path("locks")).unwrap();
    fs::write(folder.path("locks"), "").unwrap();
    let output = step(&["true"]);
    assert_ends(&output, 78);
    assert!(stderr(&output).contains("no lock to be had"), "{output:?}");
}
