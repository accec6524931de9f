//! The command line: types and help text, nothing else.
//!
//! Values stay text here. They are read in `config`, together with those from the environment
//! and the file, so that each of them is understood, and refused, in one way only.
#![expect(
    clippy::doc_markdown,
    reason = "the documentation of an option is its help text, shown on a terminal"
)]

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueHint};

use crate::model::code;

/// What was typed.
#[derive(Debug, Parser)]
#[command(
    name = "distlock",
    version,
    about = "Run a command on one host of many at a time",
    long_about = "Run a command on one host of many at a time: a pidfile for a fleet.\n\n\
        distlock takes a lock on a lock server (Redis, Valkey), runs the command, renews the \
        lease while it runs, and releases the lock when it has ended. If the lease is lost, the \
        command is stopped before another host can start it.",
    after_help = "`distlock run --help` tells all about a subcommand; `distlock run -h` is short.",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Run a command while holding a lock
    ///
    /// Takes the lock NAME, runs COMMAND, and releases the lock when COMMAND and what it left
    /// running have ended. The exit status is that of COMMAND. Options end at the first word
    /// that is not one, or at `--`; everything after it belongs to COMMAND.
    Run(Box<Run>),
    /// Show who holds locks
    ///
    /// Shows for each NAME whether the lock is held, by whom, since when and until when. Exits
    /// with 0 if all could be asked, else with 69.
    Status(Status),
    /// List all locks
    ///
    /// Lists every lock on the server that is held, cooling (--hold-at-least) or being released.
    List(List),
    /// Release a lock that somebody holds
    ///
    /// The holder is told: it stops its command with the full grace and exits with 79, and only
    /// then can another take the lock. The lock of a dead holder ends with its TTL.
    Release(Release),
}

/// `distlock run`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch on the command line"
)]
#[derive(Args, Clone, Debug, Default)]
#[command(
    override_usage = "distlock run [OPTIONS] --name <NAME> [--] <COMMAND> [ARG]...\n       \
        distlock run [OPTIONS] --name <NAME> -c <LINE>",
    args_override_self = true,
    after_help = "The exit code is the command's; 75: held by another, 69: no server, 79: lease \
        lost. `distlock run --help` has all of them, and examples.",
    after_long_help = RUN_EPILOGUE
)]
pub struct Run {
    /// Which lock to take
    ///
    /// 1 to 200 bytes without white space, control characters, `{` and `}`. Hosts that use the
    /// same name on the same server exclude each other.
    #[arg(long, value_name = "NAME", help_heading = LOCK)]
    pub name: Option<String>,

    /// How long the lock outlives its holder [default: 60s]
    ///
    /// How long the server keeps the lock without renewal, from 1s to 24h [default: 60s]. It is
    /// renewed while the command runs; if the host dies, the lock is free after this time. If no
    /// renewal succeeds, the command is stopped before it has passed.
    #[arg(long, value_name = "D", help_heading = LOCK)]
    pub ttl: Option<String>,

    /// Give up at once if the lock is held, which is the default
    #[arg(short, long, conflicts_with_all = ["wait", "wait_for"], help_heading = LOCK)]
    pub nonblock: bool,

    /// Wait up to D for the lock
    #[arg(short = 'w', value_name = "D", conflicts_with = "wait", help_heading = LOCK)]
    pub wait_for: Option<String>,

    /// Wait for the lock; without D, for ever
    ///
    /// --wait=D waits up to D, --wait alone for ever. A wait that ran out exits with 75, or with
    /// 69 if the last answer was an error.
    #[arg(
        long, value_name = "D", num_args = 0..=1, require_equals = true,
        default_missing_value = FOREVER, help_heading = LOCK
    )]
    pub wait: Option<String>,

    /// The exit code for "held by another" [default: 75]
    #[arg(short = 'E', long, value_name = "N", help_heading = LOCK)]
    pub conflict_exit_code: Option<String>,

    /// Keep the lock taken for at least D
    ///
    /// The lock stays taken for D from its acquisition, even if the command ends sooner; the
    /// server keeps it, distlock exits at once. Against the skew of clocks: with it, a cron job
    /// that takes one second does not run again on a host whose clock is three seconds behind.
    #[arg(long, value_name = "D", help_heading = LOCK)]
    pub hold_at_least: Option<String>,

    /// Pause for a random time up to D first
    #[arg(long, value_name = "D", help_heading = LOCK)]
    pub jitter: Option<String>,

    /// Why, shown to whoever is refused
    #[arg(long, value_name = "TEXT", help_heading = LOCK)]
    pub reason: Option<String>,

    /// The exact key on the server
    ///
    /// Instead of `distlock:{NAME}`, to share a lock with a program that uses a lock library
    /// (Redsync, redis-py, node-redlock, rslock).
    #[arg(long, value_name = "KEY", help_heading = LOCK)]
    pub raw_key: Option<String>,

    /// Exit with 74 if the release is not confirmed
    ///
    /// Where the command itself failed, its own status stands. Without this a release that was
    /// not confirmed is only said.
    #[arg(long, help_heading = LOCK)]
    pub strict_release: bool,

    /// Run LINE with /bin/sh
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command", help_heading = COMMAND)]
    pub line: Option<OsString>,

    /// Stop the command when it has run for D; exit 124
    ///
    /// It is sent --signal, and KILL after --kill-after. 0 means no limit.
    #[arg(long, value_name = "D", help_heading = COMMAND)]
    pub max_runtime: Option<String>,

    /// The signal that stops the command [default: TERM]
    ///
    /// The first signal when distlock itself stops the command, written as TERM, SIGTERM or 15.
    #[arg(long, value_name = "SIG", help_heading = COMMAND)]
    pub signal: Option<String>,

    /// KILL so long after that signal [default: 10s]
    ///
    /// The default is a sixth of a --ttl below 60s.
    #[arg(short, long, value_name = "D", help_heading = COMMAND)]
    pub kill_after: Option<String>,

    /// What to do when the lease is lost [default: stop]
    ///
    /// `stop` stops the command, `warn` lets it go on without the lock. Both exit with 79.
    #[arg(long, value_name = "HOW", value_parser = ON_LOST, help_heading = COMMAND)]
    pub on_lost: Option<String>,

    /// The grace when another may hold the lock already
    ///
    /// It stands between the signal and KILL when the lock is definitely lost [default: 1s, or
    /// --kill-after if that is shorter].
    #[arg(long, value_name = "D", help_heading = COMMAND)]
    pub lost_grace: Option<String>,

    /// What to do with what the command left running [default: wait]
    ///
    /// Processes may still run when the command itself has ended: `wait` holds the lock until
    /// those in its session have ended too, `kill` ends all of them, `ignore` releases at once.
    #[arg(long, value_name = "HOW", value_parser = LEFTOVERS, help_heading = COMMAND)]
    pub leftovers: Option<String>,

    /// Exit with the command's status instead of 79 or 124
    #[arg(long, help_heading = COMMAND)]
    pub preserve_status: bool,

    /// How to reach the locks.
    #[command(flatten)]
    pub connection: Connection,

    /// Write one JSON object to FILE at the end
    ///
    /// It has the keys outcome, child_code, child_signal, fence, waited_ms, ran_ms, released.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub report: Option<PathBuf>,

    /// Do not say "held by another" or who is waited for
    #[arg(short, long, conflicts_with = "verbose", help_heading = OUTPUT)]
    pub quiet: bool,

    /// Say each step, and which configuration file was read
    #[arg(short, long, help_heading = OUTPUT)]
    pub verbose: bool,

    /// The form of distlock's own lines [default: text]
    #[arg(long, value_name = "FORM", value_parser = LOG_FORMATS, help_heading = OUTPUT)]
    pub log_format: Option<String>,

    /// The command and its arguments
    ///
    /// It is executed directly; a shell line needs -c.
    #[arg(
        trailing_var_arg = true, value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// How to reach the locks; for every subcommand.
#[derive(Args, Clone, Debug, Default)]
pub struct Connection {
    /// Where the locks live, as a URL.
    #[arg(
        long, value_name = "URL", action = ArgAction::Append, help_heading = CONNECTION,
        help = SERVER, long_help = LONG_SERVER
    )]
    pub server: Vec<String>,

    /// The user on the server
    #[arg(long, value_name = "USER", help_heading = CONNECTION)]
    pub user: Option<String>,

    /// A file with the password
    ///
    /// The password is its first line. It is read again when the server refuses the password, so
    /// that a password can be changed while a command runs.
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub password_file: Option<PathBuf>,

    /// TLS: trust these authorities instead of the system's
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub cacert: Option<PathBuf>,

    /// TLS: our own certificate
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub cert: Option<PathBuf>,

    /// TLS: the private key of --cert
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub key: Option<PathBuf>,

    /// TLS: do not verify the server's certificate
    #[arg(long, help_heading = CONNECTION)]
    pub insecure: bool,

    /// The limit of one attempt to reach the server [default: 2s]
    ///
    /// It bounds all of an attempt when acquiring or asking: look-up, connect, TLS and greeting;
    /// the answer may take as long once more.
    #[arg(long, value_name = "D", help_heading = CONNECTION)]
    pub connect_timeout: Option<String>,

    /// The configuration file
    ///
    /// The default is the first of $XDG_CONFIG_HOME/distlock.toml (or ~/.config/distlock.toml)
    /// and /etc/distlock.toml.
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub config: Option<PathBuf>,
}

/// `distlock status`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = STATUS_EPILOGUE)]
pub struct Status {
    /// Which locks
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,

    /// The exact key on the server, for one NAME
    #[arg(long, value_name = "KEY")]
    pub raw_key: Option<String>,

    /// One JSON object a line for each NAME
    #[arg(long)]
    pub json: bool,

    /// Print nothing: exit 0 if any is held, 1 if all are free
    ///
    /// One that is cooling or being released counts as held. 69 if it could not be told.
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,

    /// How to reach the locks.
    #[command(flatten)]
    pub connection: Connection,
}

/// `distlock list`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = LIST_EPILOGUE)]
pub struct List {
    /// One JSON object a line for each lock
    #[arg(long)]
    pub json: bool,

    /// How to reach the locks.
    #[command(flatten)]
    pub connection: Connection,
}

/// `distlock release`.
#[derive(Args, Clone, Debug, Default)]
#[command(
    override_usage = "distlock release [OPTIONS] <NAME> --id <ID> [--now]\n       \
        distlock release [OPTIONS] <NAME> --force [--yes] [--now]",
    group = clap::ArgGroup::new("which").args(["id", "force"]).required(true),
    after_long_help = RELEASE_EPILOGUE
)]
pub struct Release {
    /// Which lock
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Only if it is still held by ID, which `status` shows
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,

    /// Whoever holds it; asks first on a terminal
    #[arg(long)]
    pub force: bool,

    /// Do not ask; needed where there is no terminal
    #[arg(long, conflicts_with = "id")]
    pub yes: bool,

    /// Free it at once: a second command may start while the first still runs
    ///
    /// The holder is not told first: until it notices, its command and that of the next holder
    /// may run at the same time.
    #[arg(long)]
    pub now: bool,

    /// The exact key on the server
    #[arg(long, value_name = "KEY")]
    pub raw_key: Option<String>,

    /// How to reach the locks.
    #[command(flatten)]
    pub connection: Connection,
}

/// The value of a `--wait` that stands alone.
pub const FOREVER: &str = "forever";
/// The values of `--on-lost`.
pub const ON_LOST: [&str; 2] = ["stop", "warn"];
/// The values of `--leftovers`.
pub const LEFTOVERS: [&str; 3] = ["wait", "kill", "ignore"];
/// The values of `--log-format`.
pub const LOG_FORMATS: [&str; 2] = ["text", "json"];

const SERVER: &str = "Where the locks live, such as redis://HOST:6379";
const LONG_SERVER: &str = "\
Where the locks live, such as redis://HOST:6379

redis://HOST[:PORT][/DB], rediss:// (TLS), redis+unix:///PATH, valkey://, valkeys://; \
file:///DIR or `local` for locks of this host only. There is no default. A password cannot stand \
in it here, because it would show in ps: use --password-file, DISTLOCK_PASSWORD or the file.";

const LOCK: &str = "Lock";
const COMMAND: &str = "Command";
const CONNECTION: &str = "Connection";
const OUTPUT: &str = "Output";

const RUN_EPILOGUE: &str = "\
Durations: 500ms 60s 5m 1h30m 2d; a bare number is seconds.

Every option but --name, --raw-key, --reason, --report and -c has an environment variable
(DISTLOCK_TTL for --ttl), and every one but --config a key in the configuration file.

Exit codes:
  the command's   it ran, and the lock was held throughout
  128+N           it was killed by signal N
  124             stopped by --max-runtime
  126, 127        the command is not executable, or not found
  75              held by another, or the wait ran out: not run (-E changes it)
  69              no lock server reachable or usable: not run
  77              the server refused us: not run
  79              the lease was lost while the command ran
  74              with --strict-release: the release was not confirmed
  64, 78          wrong usage; wrong configuration file or environment
  70, 71          a bug in distlock; trouble with processes or descriptors

Examples:
  A cron job on several hosts, on one of them at a time:
    distlock run --name backup --hold-at-least 30s -- /usr/local/bin/backup.sh
  Wait up to 25 minutes for a deployment to end:
    distlock run --name deploy --wait=25m -- ./deploy.sh
  A shell line:
    distlock run --name report -c 'make-report | mail -s report ops'";

const STATUS_EPILOGUE: &str = "\
Exit codes: 0 all could be asked, 69 not all; 64, 78 wrong usage or configuration.

Examples:
  distlock status backup
  distlock status --json backup deploy
  distlock status -q backup && echo running";

const LIST_EPILOGUE: &str = "\
Exit codes: 0 done, 69 no server reachable, 77 refused; 64, 78 wrong usage or configuration.";

const RELEASE_EPILOGUE: &str = "\
Exit codes: 0 done, or already free; 1 nothing done: held by another id, changed hands, or not
confirmed on the terminal; 69 no server reachable; 77 refused; 64, 78 wrong usage or
configuration.

Examples:
  distlock release backup --id 7f3a91c2
  distlock release backup --force";

/// A command line that is not to be carried out: it is wrong, or asks for help or the version.
#[derive(Debug)]
pub struct Refusal(Answer);

#[derive(Debug)]
enum Answer {
    Clap(clap::Error),
    Text(&'static str),
}

/// Reads the command line.
///
/// # Errors
/// It is wrong, or asks for help or the version.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, Refusal> {
    let words: Vec<OsString> = words.into_iter().collect();
    Cli::try_parse_from(&words).map_err(|error| {
        let run = words.get(1).is_some_and(|word| word == "run");
        if run && is_about_timeout(&error) {
            Refusal(Answer::Text(
                "--timeout: say --wait (for the lock) or --max-runtime (for the command)",
            ))
        } else {
            Refusal(Answer::Clap(error))
        }
    })
}

impl Refusal {
    /// Says it: help and version on stdout, everything else on stderr. Returns the exit code.
    pub fn say(&self) -> u8 {
        match &self.0 {
            Answer::Text(text) => {
                crate::output::complain(None, text);
                code::USAGE
            }
            Answer::Clap(error) => {
                // Whoever closed the stream did not want to read it.
                let _ = error.print();
                let _ = std::io::stdout().flush();
                if error.use_stderr() { code::USAGE } else { 0 }
            }
        }
    }
}

/// The whole command line as clap describes it, for man pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// timeout(1) taught people this option; which of two things they mean is for them to say.
fn is_about_timeout(error: &clap::Error) -> bool {
    matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(option)) if option.split('=').next() == Some("--timeout")
    )
}
