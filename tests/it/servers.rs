//! Real servers, each in a temporary directory of its own, ended when they go out of scope.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use distlock::clock::Boot;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything that a server does may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A running `redis-server`.
pub(crate) struct RedisServer {
    directory: TempDir,
    child: Child,
    arguments: Vec<String>,
    listens: Listens,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listens {
    Unix,
    Tcp(u16),
    Tls(u16),
}

impl RedisServer {
    /// A server on a Unix socket.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A server on a Unix socket, with these further options.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Listens::Unix, options)
    }

    /// A server on a free TCP port of the loopback device.
    pub(crate) fn tcp(options: &[&str]) -> Self {
        let port = free_port();
        Self::start_in(tempfile::tempdir().unwrap(), Listens::Tcp(port), options)
    }

    /// A server that speaks TLS on a free port, with the certificate in this directory; `None`
    /// if the program was built without TLS.
    pub(crate) fn tls(certificates: TempDir) -> Option<Self> {
        let port = Listens::Tls(free_port());
        let mut server = Self::begin(certificates, port, &[]);
        if server.is_ready() {
            return Some(server);
        }
        println!("skipped: no server with TLS: {}", server.log());
        None
    }

    fn start_in(directory: TempDir, listens: Listens, options: &[&str]) -> Self {
        let mut server = Self::begin(directory, listens, options);
        assert!(server.is_ready(), "it does not start: {}", server.log());
        server
    }

    fn begin(directory: TempDir, listens: Listens, options: &[&str]) -> Self {
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut arguments: Vec<String> = vec![
            "--dir".into(),
            path(""),
            "--logfile".into(),
            path("log"),
            "--unixsocket".into(),
            path("socket"),
            "--save".into(),
            String::new(),
        ];
        let (port, tls_port) = match listens {
            Listens::Unix => (0, 0),
            Listens::Tcp(port) => (port, 0),
            Listens::Tls(port) => (0, port),
        };
        arguments.extend([
            "--port".into(),
            port.to_string(),
            "--bind".into(),
            "127.0.0.1".into(),
        ]);
        if tls_port != 0 {
            let files = [
                "--tls-cert-file",
                "server.pem",
                "--tls-key-file",
                "server.key",
                "--tls-ca-cert-file",
                "ca.pem",
            ];
            for pair in files.chunks(2) {
                arguments.extend([pair[0].into(), path(pair[1])]);
            }
            arguments.extend(["--tls-auth-clients", "optional", "--tls-port"].map(String::from));
            arguments.push(tls_port.to_string());
        }
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        let child = spawn(&arguments);
        Self {
            directory,
            child,
            arguments,
            listens,
        }
    }

    /// Waits until it listens; whether it does.
    fn is_ready(&mut self) -> bool {
        let mut listens = false;
        within(LIMIT, || {
            listens = UnixStream::connect(self.socket()).is_ok();
            listens || self.child.try_wait().unwrap().is_some()
        });
        listens
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// What `--server` is to be.
    pub(crate) fn url(&self) -> String {
        match self.listens {
            Listens::Unix => format!("redis+unix://{}", self.socket().display()),
            Listens::Tcp(port) => format!("redis://127.0.0.1:{port}"),
            Listens::Tls(port) => format!("rediss://localhost:{port}"),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What the server has written.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill(
            Pid::from_raw(i32::try_from(self.child.id()).unwrap()),
            signal,
        )
        .unwrap();
    }

    /// Stops the server: it answers nothing until [`Self::go_on`].
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.socket());
    }

    /// Kills the server and starts it again, empty, at the same place.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.arguments);
        assert!(self.is_ready(), "it does not start again: {}", self.log());
    }

    /// Sends a command past the store; the reply as it came.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        self.commands(&[words])
    }

    /// Sends commands on one connection; the replies as they came.
    pub(crate) fn commands(&self, commands: &[&[&str]]) -> String {
        let mut socket = self.dial();
        let send = |words: &&[&str]| {
            let mut command = redis::Cmd::new();
            command.arg(words);
            exchange(&mut socket, &command)
        };
        commands.iter().map(send).collect()
    }

    /// Sets a key to a value that is no text.
    pub(crate) fn set_bytes(&self, key: &str, value: &[u8]) {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value);
        assert_eq!(exchange(&mut self.dial(), &command), "+OK\r\n");
    }

    fn dial(&self) -> UnixStream {
        let socket = UnixStream::connect(self.socket()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// Sends a command that must succeed.
    pub(crate) fn tell(&self, words: &[&str]) {
        let reply = self.command(words);
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("log of the server:\n{}", self.log());
        }
        self.kill();
    }
}

fn exchange(socket: &mut UnixStream, command: &redis::Cmd) -> String {
    socket.write_all(&command.get_packed_command()).unwrap();
    let mut reply = vec![0; 65536];
    let size = socket.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..size]).into_owned()
}

/// The server to test with; `DISTLOCK_TEST_REDIS` names another one.
fn program() -> OsString {
    std::env::var_os("DISTLOCK_TEST_REDIS").unwrap_or_else(|| "redis-server".into())
}

fn spawn(arguments: &[String]) -> Child {
    Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is needed for the tests")
}

/// Whether the server is older than 7: it does not read the flags in a script's first line.
pub(crate) fn is_old() -> bool {
    let told = Command::new(program()).arg("--version").output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let version = text
        .split_once("v=")
        .and_then(|(_, rest)| rest.split('.').next());
    version
        .and_then(|major| major.parse::<u32>().ok())
        .is_some_and(|major| major < 7)
}

/// A TCP port that nobody listened on a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Looks again and again until `happened`; whether it did within the limit.
pub(crate) fn within(limit: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let end = Boot::now().plus(limit);
    loop {
        if happened() {
            return true;
        }
        if Boot::now() >= end {
            return false;
        }
        nix::poll::poll(&mut [], 5u8).unwrap();
    }
}

/// A certificate authority and a certificate for `localhost`, in a fresh directory.
pub(crate) fn certificates() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let done = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(directory.path())
            .stderr(Stdio::null())
            .status();
        assert!(done.unwrap().success(), "openssl {line}");
    };
    let names = "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n";
    std::fs::write(directory.path().join("names"), names).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"
    ));
    openssl(&format!(
        "req {key} -keyout server.key -out server.csr -subj /CN=localhost"
    ));
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names",
    );
    directory
}
