//! Lock files opened, looked at, and locked.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::place::{self, Missing};
use super::view::View;
use super::{FileStore, name};
use crate::store::{ErrorKind, StoreError};

/// How often a lock file that changes under our hands is opened anew.
const ATTEMPTS: usize = 16;

/// A lock file is opened without following a link, without waiting for the other end of what
/// may be a pipe, and not for the command to inherit.
const OPEN: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// What became of an attempt to lock a file.
pub(super) enum Locked {
    /// It is ours to write to.
    Ours(OwnedFd),
    /// Another has it.
    Busy(View),
}

impl FileStore {
    /// Opens and locks the file, which is then the one that its name leads to.
    pub(super) fn lock(&self, directory: &OwnedFd, leaf: &str) -> Result<Locked, StoreError> {
        for attempt in 1..=ATTEMPTS {
            let file = self.open_to_lock(directory, leaf)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(directory, leaf, &file).map_err(|e| self.at(leaf, e.into()))? => {
                    return Ok(Locked::Ours(file));
                }
                // Removed, and perhaps made anew, between the two calls.
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    let view = View::of_locked(&file).map_err(|e| self.at(leaf, e))?;
                    // Freed meanwhile, unless the kernel hides who has it.
                    if view.is_certain || attempt == ATTEMPTS {
                        return Ok(Locked::Busy(view));
                    }
                }
                Err(e) => return Err(self.at(leaf, e.into())),
            }
        }
        let text = "the lock file is removed again and again; nothing may remove it";
        Err(place::error(ErrorKind::NoAnswer, &self.path(leaf), text))
    }

    fn open_to_lock(&self, directory: &OwnedFd, leaf: &str) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDWR | OPEN;
        let own = Mode::RUSR | Mode::WUSR;
        for _ in 0..ATTEMPTS {
            // First without O_CREAT: proc_sys_fs(5), protected_regular would turn a foreign
            // owner in a sticky directory into a bare "permission denied".
            let opened = match rustix::fs::openat(directory, leaf, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let new = flags | OFlags::CREATE | OFlags::EXCL;
                    rustix::fs::openat(directory, leaf, new, own)
                }
                other => other,
            };
            match opened {
                Ok(file) => return self.checked(file, leaf),
                Err(Errno::EXIST | Errno::NOENT | Errno::INTR) => {}
                Err(e) => return Err(self.refused(directory, leaf, e)),
            }
        }
        Err(self.at(leaf, Errno::NOENT.into()))
    }

    /// The directory and the file of a lock, open for reading; `None` if there is none.
    pub(super) fn open_to_look(
        &self,
        leaf: &str,
    ) -> Result<Option<(OwnedFd, OwnedFd)>, StoreError> {
        let Some(directory) = self.place.open(Missing::Leave)? else {
            return Ok(None);
        };
        match rustix::fs::openat(&directory, leaf, OFlags::RDONLY | OPEN, Mode::empty()) {
            Ok(file) => Ok(Some((directory, self.checked(file, leaf)?))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.refused(&directory, leaf, e)),
        }
    }

    fn checked(&self, file: OwnedFd, leaf: &str) -> Result<OwnedFd, StoreError> {
        let stat = rustix::fs::fstat(&file).map_err(|e| self.at(leaf, e.into()))?;
        place::check_file(&stat, geteuid().as_raw())
            .map_err(|why| place::error(ErrorKind::Foreign, &self.path(leaf), &why))?;
        Ok(file)
    }

    /// Why a file could not be opened: rather what it is than what the system call said.
    fn refused(&self, directory: &OwnedFd, leaf: &str, errno: Errno) -> StoreError {
        let unfit = place::stat(directory, leaf)
            .ok()
            .and_then(|stat| place::check_file(&stat, geteuid().as_raw()).err());
        match unfit {
            Some(why) => place::error(ErrorKind::Foreign, &self.path(leaf), &why),
            None => self.at(leaf, errno.into()),
        }
    }
}

/// Whether the name `leaf` leads to the open file.
pub(super) fn is_at(directory: &OwnedFd, leaf: &str, file: &OwnedFd) -> rustix::io::Result<bool> {
    let open = rustix::fs::fstat(file)?;
    match place::stat(directory, leaf) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

pub(super) fn file_names(directory: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    // The O_PATH descriptor cannot be read.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(directory.as_fd(), ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(open)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        names.extend(
            name.filter(|name| name.ends_with(name::SUFFIX))
                .map(str::to_owned),
        );
    }
    Ok(names)
}
