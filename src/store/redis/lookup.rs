//! Looking up host names, which only a thread can bound.
//!
//! At most one thread at a time; a later attempt waits for the same one. Before a lock is held
//! an attempt never goes on without the thread's answer, and taking the answer joins the thread:
//! the process is single-threaded when it forks.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};

use super::super::{ErrorKind, StoreError};
use super::errors;
use super::wait::Attempt;
use crate::clock::Boot;

/// Whether an answer that is late, or failed, may be replaced by the addresses of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// While a lock is held: any address is better than none.
    UseLast,
    /// Otherwise.
    Wait,
}

/// Looks up one host.
#[derive(Default)]
pub(super) struct Resolver {
    running: Option<Running>,
    last: Vec<SocketAddr>,
}

struct Running {
    thread: JoinHandle<io::Result<Vec<SocketAddr>>>,
    done: Arc<EventFd>,
}

impl Resolver {
    /// The addresses of `host`, not empty.
    pub(super) fn addresses(
        &mut self,
        host: &str,
        port: u16,
        late: Late,
        attempt: &Attempt<'_>,
    ) -> Result<Vec<SocketAddr>, StoreError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        if self.running.is_none() {
            self.running = Some(start(host.to_owned(), port)?);
        }
        let patience = attempt.limit() / 4;
        let bound = (late == Late::UseLast && !self.last.is_empty()).then_some(patience);
        match self.answer(attempt, bound)? {
            Some(Ok(addresses)) => self.last = addresses,
            Some(Err(error)) if bound.is_none() => return Err(error),
            // Late, or failed: the last addresses have to do.
            Some(Err(_)) | None => {}
        }
        Ok(self.last.clone())
    }

    /// Waits for a look-up that an earlier attempt left behind, so that no thread is alive.
    pub(super) fn settle(&mut self, attempt: &Attempt<'_>) -> Result<(), StoreError> {
        if let Some(Ok(addresses)) = self.answer(attempt, None)? {
            self.last = addresses;
        }
        Ok(())
    }

    /// The thread's answer; `None` if there is no thread, or none within `bound`.
    fn answer(
        &mut self,
        attempt: &Attempt<'_>,
        bound: Option<Duration>,
    ) -> Result<Option<Result<Vec<SocketAddr>, StoreError>>, StoreError> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let start = Boot::now();
        loop {
            let pause = bound.map(|bound| bound.saturating_sub(Boot::now().since(start)));
            let ready = attempt.wait(&[(running.done.as_fd(), PollFlags::POLLIN)], pause)?;
            if ready == [true] {
                break;
            }
            if pause == Some(Duration::ZERO) {
                return Ok(None);
            }
        }
        Ok(self.running.take().map(|running| join(running.thread)))
    }
}

/// Starts the thread, with all signals blocked: they are for the thread that expects them.
fn start(host: String, port: u16) -> Result<Running, StoreError> {
    let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(errors::of_system)?;
    let done = Arc::new(done);
    let signal = Arc::clone(&done);
    let look_up = move || {
        let found = (host.as_str(), port)
            .to_socket_addrs()
            .map(Iterator::collect);
        // The counter of a fresh descriptor takes a write without blocking.
        let _ = signal.write(1);
        found
    };
    let mask = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(errors::of_system)?;
    let thread = thread::Builder::new().name("look-up".into()).spawn(look_up);
    mask.thread_set_mask().map_err(errors::of_system)?;
    let thread = thread.map_err(|error| {
        StoreError::new(
            ErrorKind::Local,
            format!("no thread for the look-up: {error}"),
        )
    })?;
    Ok(Running { thread, done })
}

/// Takes the answer of a thread that has announced it.
fn join(thread: JoinHandle<io::Result<Vec<SocketAddr>>>) -> Result<Vec<SocketAddr>, StoreError> {
    let failed = |why: &str| {
        // The resolver prefixes its reason with words that ours already has.
        let why = why
            .strip_prefix("failed to lookup address information: ")
            .unwrap_or(why);
        StoreError::new(ErrorKind::NoAnswer, format!("look-up failed: {why}"))
    };
    match thread.join() {
        Ok(Ok(addresses)) if addresses.is_empty() => Err(failed("no address")),
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Err(_) => Err(failed("its thread panicked")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::Limits;
    use super::*;

    #[test]
    fn a_failed_look_up_uses_the_last_addresses_while_a_lock_is_held() {
        let limits = Limits::new().unwrap();
        let attempt = limits.attempt(Duration::from_secs(20)).unwrap();
        let last = vec![SocketAddr::from(([192, 0, 2, 1], 6379))];
        let mut resolver = Resolver {
            running: None,
            last: last.clone(),
        };
        let mut ask = |late| resolver.addresses("no-such-host.invalid", 6379, late, &attempt);
        assert_eq!(ask(Late::UseLast), Ok(last));
        assert!(ask(Late::Wait).is_err());
        assert!(resolver.settle(&attempt).is_ok() && resolver.running.is_none());
    }

    #[test]
    fn numeric_addresses_need_no_thread() {
        let limits = Limits::new().unwrap();
        let attempt = limits.attempt(Duration::from_secs(1)).unwrap();
        let mut resolver = Resolver::default();
        let found = resolver.addresses("::1", 7000, Late::Wait, &attempt);
        assert_eq!(found, Ok(vec!["[::1]:7000".parse().unwrap()]));
        assert!(resolver.running.is_none());
    }
}
