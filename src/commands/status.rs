//! `distlock status`: who holds locks.

use super::{Trouble, connect, show};
use crate::cli;
use crate::config::{self, Environment, Target};
use crate::model::{Holding, code};
use crate::output::complain;
use crate::output::show::{self as form, State};
use crate::store::StoreError;

/// The exit code of `-q` when all locks are free.
const FREE: u8 = 1;

/// Shows the locks; the exit code says whether all could be asked.
pub(super) fn status(flags: &cli::Status, environment: &Environment) -> Result<u8, Trouble> {
    let raw_key = flags.raw_key.as_deref();
    let targets = config::targets(&flags.names, raw_key, &flags.connection, environment)?;
    if flags.quiet {
        return Ok(quiet(&targets));
    }
    let mut exit_code = 0;
    for target in &targets {
        let found = look(target).map_err(|e| Trouble::with_store("ask", &target.connection, &e));
        if let Err(trouble) = &found {
            exit_code = code::UNAVAILABLE;
            complain(Some(target.key.name.as_str()), &trouble.text());
        }
        let state = match &found {
            Ok(Some(holding)) => State::Taken(holding),
            Ok(None) => State::Free,
            Err(trouble) => State::Unknown(&trouble.text()),
        };
        show(&if flags.json {
            form::json(&target.key, &target.connection.server, &state)
        } else {
            form::text(&target.key, &state)
        })?;
    }
    Ok(exit_code)
}

/// One that is held decides, whatever is not known of the others.
fn quiet(targets: &[Target]) -> u8 {
    let mut exit_code = FREE;
    for target in targets {
        match look(target) {
            Ok(Some(_)) => return 0,
            Ok(None) => {}
            Err(_) => exit_code = code::UNAVAILABLE,
        }
    }
    exit_code
}

fn look(target: &Target) -> Result<Option<Holding>, StoreError> {
    let mut store = connect(&target.connection)?;
    store.inspect(&target.key, target.connection.connect_timeout)
}
