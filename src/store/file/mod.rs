//! Locks in files of this host: `file:///dir` and `local`.
//!
//! The lock is the kernel's, an advisory one (flock(2)) on a file that is never removed; what
//! stands in the file tells others who has it. It belongs to the open file description, so
//! that it outlives a process that forked and is free when the last copy of the descriptor is
//! closed, or as soon as one who has a copy says `LOCK_UN`. Nothing has to be renewed.
//!
//! Looking never locks: a `status` must not get into the way of an acquisition.

mod content;
mod evict;
mod name;
mod open;
mod place;
mod proc;
#[cfg(test)]
mod tests;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use self::content::{Content, Found, HeldUntil};
use self::open::{Locked, file_names, is_at};
use self::place::{Missing, Place, failed};
use self::view::{State, View};
use super::{
    Access, Acquired, ErrorKind, Evict, Evicted, Keep, LeaseKind, LockStore, Loss, Opened,
    Released, Renewed, ServerUrl, StoreError,
};
use crate::clock::{Boot, ServerTime, Stamp};
use crate::model::{Claim, FencingToken, Hold, Holding, LockKey, LockName, Record, TimeLeft};

/// The URL schemes of this store.
pub(super) const SCHEMES: &[&str] = &["file", "local"];

/// Opens the store that `server` names; touches no file yet.
pub(super) fn open(server: &ServerUrl, _access: &Access) -> Opened {
    let place = if server.scheme() == "local" {
        let bare = matches!(server.url().as_str(), "local:" | "local://");
        bare.then(|| Place::local(geteuid().as_raw()))
    } else {
        directory(server).map(Place::Directory)
    };
    let place = place.ok_or_else(|| {
        let text = format!("{server} is not a place for lock files; write file:///DIR or local");
        StoreError::new(ErrorKind::Foreign, text)
    })?;
    Ok(Box::new(FileStore {
        place,
        held: Vec::new(),
    }))
}

fn directory(server: &ServerUrl) -> Option<PathBuf> {
    let url = server.url();
    let plain = url.query().is_none() && url.fragment().is_none();
    plain.then(|| url.to_file_path().ok()).flatten()
}

/// Locks in the files of one directory.
struct FileStore {
    place: Place,
    /// What was granted and not released. A lock is held by the descriptor in here.
    held: Vec<Held>,
}

/// A lock that was granted.
struct Held {
    file: OwnedFd,
    leaf: String,
    /// What we wrote last.
    content: Content,
    /// Until when it stays taken, fixed by the first attempt to release it.
    until: Option<Boot>,
}

impl LockStore for FileStore {
    fn clock(&mut self, _limit: Duration) -> Result<ServerTime, StoreError> {
        Ok(ServerTime::of_this_host())
    }

    fn acquire(&mut self, claim: &Claim, _limit: Duration) -> Result<Acquired, StoreError> {
        let leaf = leaf(&claim.key)?;
        let sent = Stamp::now();
        let again = |held: &&Held| held.content.value == claim.value;
        if let Some(held) = self.held.iter().find(again) {
            let fence = Some(FencingToken(held.content.fence));
            return Ok(Acquired::Granted { sent, fence });
        }
        let Some(directory) = self.place.open(Missing::Make)? else {
            return Err(StoreError::new(ErrorKind::NoAnswer, "no directory"));
        };
        match self.lock(&directory, &leaf)? {
            Locked::Ours(file) => self.grant(claim, file, leaf, sent),
            Locked::Busy(view) => Ok(held_by(&claim.key, view)),
        }
    }

    fn renew(&mut self, hold: &Hold, _limit: Duration) -> Result<Renewed, StoreError> {
        let sent = Stamp::now();
        let Some(at) = self.position(&hold.claim) else {
            return Ok(Renewed::Lost(Loss::Absent));
        };
        if self.is_in_place(&self.held[at])? {
            return Ok(Renewed::Renewed { sent, found: None });
        }
        // Someone removed the file: whoever comes next makes another and locks that.
        Ok(Renewed::Lost(match self.holding(&hold.claim.key)? {
            Some(other) => Loss::Taken(Box::new(other)),
            None => Loss::Absent,
        }))
    }

    fn release(
        &mut self,
        hold: &Hold,
        keep: &Keep,
        _limit: Duration,
    ) -> Result<Released, StoreError> {
        let Some(at) = self.position(&hold.claim) else {
            return self.released_before(hold, keep);
        };
        // Whatever has become of the directory: our own descriptor can be unlocked.
        if matches!(self.is_in_place(&self.held[at]), Ok(false)) {
            self.unlock(at)?;
            return Ok(match self.holding(&hold.claim.key)? {
                Some(other) => Released::Other(Box::new(other)),
                None => Released::Absent,
            });
        }
        self.say_released(at, keep)?;
        self.unlock(at)?;
        Ok(Released::Freed)
    }

    fn evict(
        &mut self,
        seen: &Holding,
        how: &Evict,
        _limit: Duration,
    ) -> Result<Evicted, StoreError> {
        let leaf = leaf(&seen.key)?;
        let Some((directory, file)) = self.open_to_look(&leaf)? else {
            return Ok(Evicted::Absent);
        };
        let view = View::of(&file).map_err(|e| self.at(&leaf, e))?;
        match view.state {
            State::Free => Ok(Evicted::Absent),
            _ if view.content.value.as_bytes() != seen.value => {
                Ok(Evicted::Changed(Box::new(view.into_holding(&seen.key))))
            }
            State::Held => {
                self.signal(&view.content, &file, how)?;
                Ok(Evicted::Done)
            }
            State::Cooling(_) => self.end_cooling(&directory, &leaf, seen),
        }
    }

    fn inspect(&mut self, key: &LockKey, _limit: Duration) -> Result<Option<Holding>, StoreError> {
        self.holding(key)
    }

    fn list(&mut self, _limit: Duration) -> Result<Vec<Holding>, StoreError> {
        let Some(directory) = self.place.open(Missing::Leave)? else {
            return Ok(Vec::new());
        };
        let names = file_names(&directory).map_err(|e| self.at("", e.into()))?;
        let mut found: Vec<Holding> = names
            .iter()
            .filter_map(|leaf| self.listed(leaf).transpose())
            .collect::<Result<_, _>>()?;
        found.sort_by(|one, other| one.key.name.cmp(&other.key.name));
        Ok(found)
    }

    fn lease(&self) -> LeaseKind {
        LeaseKind::Descriptor
    }
}

impl FileStore {
    fn position(&self, claim: &Claim) -> Option<usize> {
        self.held
            .iter()
            .position(|held| held.content.value == claim.value)
    }

    /// Writes the claim into the file that we have locked, unless the lock is cooling.
    fn grant(
        &mut self,
        claim: &Claim,
        file: OwnedFd,
        leaf: String,
        sent: Stamp,
    ) -> Result<Acquired, StoreError> {
        let (boot, now) = (proc::boot_id(), Boot::now());
        let before = self.ours(&file, &leaf, &claim.key.name)?;
        if let Some(content) = &before {
            if content.name != claim.key.name.as_str() {
                let text = format!("the file of another lock ({:?})", content.name);
                return Err(place::error(ErrorKind::Foreign, &self.path(&leaf), &text));
            }
            if let Some(rest) = content.cooling(&boot, now) {
                // Dropping the descriptor, the only one, unlocks it.
                let state = State::Cooling(rest);
                return Ok(held_by(&claim.key, View::certain(content.clone(), state)));
            }
        }
        let content = Content {
            name: claim.key.name.as_str().to_owned(),
            fence: before
                .as_ref()
                .map_or(0, |content| content.fence)
                .saturating_add(1),
            held_until: None,
            pid_namespace: proc::pid_namespace(),
            value: claim.value.clone(),
        };
        content::write(&file, &content, before.as_ref()).map_err(|e| self.at(&leaf, e.into()))?;
        let fence = Some(FencingToken(content.fence));
        self.held.push(Held {
            file,
            leaf,
            content,
            until: None,
        });
        Ok(Acquired::Granted { sent, fence })
    }

    /// What stands in a file that we have locked; `None` if it is new.
    fn ours(
        &self,
        file: &OwnedFd,
        leaf: &str,
        name: &LockName,
    ) -> Result<Option<Content>, StoreError> {
        match content::read(file).map_err(|e| self.at(leaf, e.into()))? {
            Found::Whole(content) => Ok(Some(content)),
            Found::Empty => Ok(None),
            Found::Foreign => Err(self.at(leaf, view::Error::Foreign)),
            // A crash of the host cut it. The fencing token must rise all the same, and no
            // count of acquisitions comes near the clock.
            Found::Damaged => Ok(Some(Content {
                name: name.to_string(),
                fence: ServerTime::of_this_host().0,
                ..Content::default()
            })),
        }
    }

    /// Whether the lock's name still leads to the file whose lock we have.
    fn is_in_place(&self, held: &Held) -> Result<bool, StoreError> {
        match self.place.open(Missing::Leave)? {
            Some(directory) => {
                is_at(&directory, &held.leaf, &held.file).map_err(|e| self.at(&held.leaf, e.into()))
            }
            None => Ok(false),
        }
    }

    /// Writes that the command has ended, and until when the lock stays taken.
    fn say_released(&mut self, at: usize, keep: &Keep) -> Result<(), StoreError> {
        let now = Boot::now();
        let held = &mut self.held[at];
        let until = *held.until.get_or_insert(now.plus(keep.rest));
        let cools = !keep.rest.is_zero() && until > now;
        let boot = proc::boot_id();
        let content = Content {
            held_until: cools.then(|| HeldUntil::new(boot, until)),
            value: if cools {
                keep.cooling.clone()
            } else {
                String::new()
            },
            ..held.content.clone()
        };
        match content::write(&held.file, &content, Some(&held.content)) {
            // A record that stays behind misleads nobody: the lock is free, and that counts.
            Err(e) if cools => Err(self.at(&self.held[at].leaf, e.into())),
            _ => Ok(()),
        }
    }

    /// Frees the lock, also where another process has a copy of the descriptor.
    fn unlock(&mut self, at: usize) -> Result<(), StoreError> {
        let held = &self.held[at];
        flock(&held.file, FlockOperation::Unlock).map_err(|e| self.at(&held.leaf, e.into()))?;
        self.held.remove(at);
        Ok(())
    }

    /// Answers a release of what this store does not have, or has no more.
    fn released_before(&self, hold: &Hold, keep: &Keep) -> Result<Released, StoreError> {
        Ok(match self.holding(&hold.claim.key)? {
            None => Released::Absent,
            Some(found) if !keep.cooling.is_empty() && found.value == keep.cooling.as_bytes() => {
                Released::Freed
            }
            Some(found) => Released::Other(Box::new(found)),
        })
    }

    fn holding(&self, key: &LockKey) -> Result<Option<Holding>, StoreError> {
        let leaf = leaf(key)?;
        let Some((_, file)) = self.open_to_look(&leaf)? else {
            return Ok(None);
        };
        let view = View::of(&file).map_err(|e| self.at(&leaf, e))?;
        Ok((view.state != State::Free).then(|| view.into_holding(key)))
    }

    /// A file of the directory, as a line of a list; `None` if it is no lock that is taken.
    fn listed(&self, leaf: &str) -> Result<Option<Holding>, StoreError> {
        let file = match self.open_to_look(leaf) {
            Ok(Some((_, file))) => file,
            // Another user's lock, or no lock at all, in a shared directory.
            Err(e) if e.kind == ErrorKind::Foreign => return Ok(None),
            Ok(None) => return Ok(None),
            Err(e) => return Err(e),
        };
        let view = match View::of(&file) {
            Ok(view) if view.state != State::Free => view,
            Ok(_) | Err(view::Error::Foreign) => return Ok(None),
            // Listed all the same: it may well be held.
            Err(view::Error::Hidden) => View::of_locked(&file).map_err(|e| self.at(leaf, e))?,
            Err(e) => return Err(self.at(leaf, e)),
        };
        let name: Option<LockName> = name::lock_name(leaf).or_else(|| {
            let name: LockName = view.content.name.parse().ok()?;
            (name::file_name(&name) == leaf).then_some(name)
        });
        Ok(name.map(|name| view.into_holding(&name.into())))
    }

    fn path(&self, leaf: &str) -> PathBuf {
        match &self.place {
            Place::Directory(path) => path.join(leaf),
            Place::Local(_) => PathBuf::from("local").join(leaf),
        }
    }

    fn at(&self, leaf: &str, e: view::Error) -> StoreError {
        match e {
            view::Error::System(errno) => failed(&self.path(leaf), errno),
            view::Error::Foreign => {
                let text = "not a lock file of distlock; nothing was changed";
                place::error(ErrorKind::Foreign, &self.path(leaf), text)
            }
            view::Error::Hidden => {
                let text = "cannot tell whether it is held: its last holder ran in another pid namespace (a container)";
                place::error(ErrorKind::NoAnswer, &self.path(leaf), text)
            }
        }
    }
}

fn leaf(key: &LockKey) -> Result<String, StoreError> {
    match &key.raw {
        None => Ok(name::file_name(&key.name)),
        Some(_) => Err(StoreError::new(
            ErrorKind::Unsupported,
            "--raw-key needs a lock server; locks in files have names only",
        )),
    }
}

fn held_by(key: &LockKey, view: View) -> Acquired {
    Acquired::Held(Box::new(view.into_holding(key)))
}

/// Whether a record was written since the host booted.
fn is_of_this_boot(record: &Record) -> bool {
    !record.boot.is_empty() && proc::boot_id().starts_with(&record.boot)
}
