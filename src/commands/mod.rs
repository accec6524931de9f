//! The subcommands, one file each.

mod list;
mod release;
mod run;
mod status;

use std::fmt::{Debug, Display};

use anyhow::Context as _;

use crate::cli::{Cli, Task};
use crate::config::{ConfigError, Connection, Environment};
use crate::model::{Outcome, code};
use crate::output::{complain, print};
use crate::store::{self, LockStore, StoreError};

/// Carries out what was typed, and says how the process is to end.
pub fn dispatch(cli: Cli, environment: &Environment) -> Outcome {
    let ended = match cli.task {
        Task::Run(flags) => run::run(&flags, environment),
        Task::Status(flags) => status::status(&flags, environment).map(Outcome::Code),
        Task::List(flags) => list::list(&flags, environment).map(Outcome::Code),
        Task::Release(flags) => release::release(&flags, environment).map(Outcome::Code),
    };
    ended.unwrap_or_else(|trouble| {
        complain(trouble.lock.as_deref(), &trouble.text());
        Outcome::Code(trouble.code)
    })
}

/// Why a subcommand cannot do its work.
#[derive(Debug)]
struct Trouble {
    /// The lock that it is about, if it is one.
    lock: Option<String>,
    code: u8,
    cause: anyhow::Error,
}

impl Trouble {
    fn new(code: u8, text: impl Display + Debug + Send + Sync + 'static) -> Self {
        Self::because(code, anyhow::Error::msg(text))
    }

    fn because(code: u8, cause: anyhow::Error) -> Self {
        Self {
            lock: None,
            code,
            cause,
        }
    }

    /// `act` completes "cannot".
    fn with_store(act: &str, connection: &Connection, error: &StoreError) -> Self {
        let server = &connection.server;
        let cause = anyhow::Error::new(error.clone()).context(format!("cannot {act} {server}"));
        Self::because(error.kind.exit_code(), cause)
    }

    /// The whole sentence.
    fn text(&self) -> String {
        format!("{:#}", self.cause)
    }

    fn about(self, lock: &str) -> Self {
        Self {
            lock: Some(lock.to_owned()),
            ..self
        }
    }
}

impl From<ConfigError> for Trouble {
    fn from(error: ConfigError) -> Self {
        Self::because(error.code(), error.into())
    }
}

/// Opens the store and connects, so that what is asked then has as long again for its answer.
fn connect(connection: &Connection) -> Result<Box<dyn LockStore>, StoreError> {
    let mut store = store::open(&connection.server, &connection.access)?;
    store.clock(connection.connect_timeout)?;
    Ok(store)
}

/// Writes a result to stdout.
fn show(text: &str) -> Result<(), Trouble> {
    print(text)
        .context("cannot write")
        .map_err(|cause| Trouble::because(code::OS, cause))
}
