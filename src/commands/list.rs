//! `distlock list`: every lock that is taken.

use super::{Trouble, connect, show};
use crate::cli;
use crate::config::{self, Connection, Environment};
use crate::model::Holding;
use crate::output::is_shown;
use crate::output::show::{self as form, State};
use crate::store::StoreError;

/// Shows all locks.
pub(super) fn list(flags: &cli::List, environment: &Environment) -> Result<u8, Trouble> {
    let connection = config::connection(&flags.connection, environment)?;
    let holdings = look(&connection).map_err(|e| Trouble::with_store("list", &connection, &e))?;
    show(&if flags.json {
        let line = |holding: &Holding| {
            form::json(&holding.key, &connection.server, &State::Taken(holding))
        };
        holdings.iter().map(line).collect()
    } else if !is_shown() {
        form::rows(&holdings)
    } else if holdings.is_empty() {
        format!("no locks at {}\n", connection.server)
    } else {
        form::table(&holdings)
    })?;
    Ok(0)
}

fn look(connection: &Connection) -> Result<Vec<Holding>, StoreError> {
    connect(connection)?.list(connection.connect_timeout)
}
