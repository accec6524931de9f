//! The directory of the lock files: where it is, and whether it is fit for locks.

use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::store::{ErrorKind, StoreError};

use super::proc;

/// Where the lock files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this directory.
    Directory(PathBuf),
    /// In a directory of our own below the first of these parents where it can be made. Never
    /// decided by the environment: a job of cron and a login shell must meet.
    Local(Vec<(PathBuf, String)>),
}

/// Whether a missing directory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is made, if its parent is there.
    Make,
    /// It has no locks, then.
    Leave,
}

impl Place {
    /// The place of the `local` store for the user `uid`.
    pub(super) fn local(uid: u32) -> Self {
        let own = format!("distlock-{uid}");
        let in_run = if uid == 0 {
            "distlock".to_owned()
        } else {
            own.clone()
        };
        Self::Local(vec![("/run/lock".into(), in_run), ("/tmp".into(), own)])
    }

    /// Opens the directory once it was found fit; `None` if there is none.
    ///
    /// The descriptor is an `O_PATH` one: good for the *at calls, whatever the permissions to
    /// read it.
    pub(super) fn open(&self, missing: Missing) -> Result<Option<OwnedFd>, StoreError> {
        match self {
            Self::Directory(path) => open_given(path, missing),
            Self::Local(places) => open_local(places, missing),
        }
    }
}

/// An error about `path`.
pub(super) fn error(kind: ErrorKind, path: &Path, text: &str) -> StoreError {
    StoreError::new(kind, format!("{}: {text}", path.display()))
}

/// What a failed system call on `path` means.
pub(super) fn failed(path: &Path, errno: Errno) -> StoreError {
    let kind = match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => ErrorKind::Local,
        Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NAMETOOLONG => ErrorKind::Foreign,
        _ => ErrorKind::NoAnswer,
    };
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    error(kind, path, &text.to_lowercase())
}

fn open_given(path: &Path, missing: Missing) -> Result<Option<OwnedFd>, StoreError> {
    let opened = match open_directory(CWD, path, OFlags::empty()) {
        Err(Errno::NOENT) if missing == Missing::Make => {
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open_directory(CWD, path, OFlags::empty()),
                Err(Errno::NOENT) => {
                    let text = "no such directory, and none above it to make it in";
                    return Err(error(ErrorKind::NoAnswer, path, text));
                }
                Err(e) => Err(e),
            }
        }
        Err(Errno::NOENT) => return Ok(None),
        other => other,
    };
    let directory = opened.map_err(|e| match e {
        Errno::NOTDIR => error(ErrorKind::Foreign, path, "not a directory"),
        _ => failed(path, e),
    })?;
    check(&directory, path)?;
    Ok(Some(directory))
}

fn open_local(
    places: &[(PathBuf, String)],
    missing: Missing,
) -> Result<Option<OwnedFd>, StoreError> {
    let mut last = None;
    for (parent, own) in places {
        let path = parent.join(own);
        let Ok(above) = open_directory(CWD, parent, OFlags::empty()) else {
            last = Some(error(ErrorKind::NoAnswer, parent, "cannot be opened"));
            continue;
        };
        if let Err(e) = check(&above, parent) {
            last = Some(e);
            continue;
        }
        match open_directory(&above, own.as_ref(), OFlags::NOFOLLOW) {
            Ok(directory) => return private(directory, &path).map(Some),
            Err(Errno::NOENT) if missing == Missing::Leave => continue,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(unfit(&path, e)),
        }
        match rustix::fs::mkdirat(&above, own.as_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            // These stay as they are, so that all of a user's processes go to the same place;
            // what may pass (a full disk) must not send one of them elsewhere.
            Err(e @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                last = Some(failed(&path, e));
                continue;
            }
            Err(e) => return Err(failed(&path, e)),
        }
        let directory =
            open_directory(&above, own.as_ref(), OFlags::NOFOLLOW).map_err(|e| unfit(&path, e))?;
        return private(directory, &path).map(Some);
    }
    match (missing, last) {
        (Missing::Make, Some(e)) => Err(e),
        _ => Ok(None),
    }
}

fn open_directory(at: impl AsFd, path: &Path, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

fn unfit(path: &Path, errno: Errno) -> StoreError {
    match errno {
        // open(2): with O_NOFOLLOW and O_DIRECTORY a symbolic link is ENOTDIR.
        Errno::NOTDIR | Errno::LOOP => {
            let text = "not a directory (symbolic links are refused here)";
            error(ErrorKind::Foreign, path, text)
        }
        _ => failed(path, errno),
    }
}

/// A directory of our own: nobody else's, and closed to everybody else.
fn private(directory: OwnedFd, path: &Path) -> Result<OwnedFd, StoreError> {
    let stat = rustix::fs::fstat(&directory).map_err(|e| failed(path, e))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let text = format!("belongs to another user (uid {})", stat.st_uid);
        return Err(error(ErrorKind::Foreign, path, &text));
    }
    if stat.st_mode & 0o077 != 0 {
        let text = "others have access to it; chmod 700 it";
        return Err(error(ErrorKind::Foreign, path, text));
    }
    check(&directory, path)?;
    Ok(directory)
}

/// Whether nobody but us and root can take a lock file away in this directory, and whether
/// all who see it are on this host.
fn check(directory: &OwnedFd, path: &Path) -> Result<(), StoreError> {
    let stat = rustix::fs::fstat(directory).map_err(|e| failed(path, e))?;
    let own = rustix::process::geteuid().as_raw();
    if let Some(why) = who_else_could_remove(&stat, own) {
        return Err(error(ErrorKind::Foreign, path, &why));
    }
    let kind = rustix::fs::fstatfs(directory).map_err(|e| failed(path, e))?;
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "statfs(2): a magic number of 32 bits in a signed word"
    )]
    let magic = kind.f_type as u32;
    if let Some(name) = reaching_beyond(magic, || proc::file_system(directory)) {
        let text = format!(
            "on a file system that other hosts may share ({name}); a file lock holds on one host only, so choose a local directory or a lock server"
        );
        return Err(error(ErrorKind::Foreign, path, &text));
    }
    Ok(())
}

fn who_else_could_remove(directory: &Stat, own: u32) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let owner = directory.st_uid;
    if owner != own && owner != 0 {
        return Some(format!(
            "belongs to another user (uid {owner}), who could take the locks away"
        ));
    }
    let open = directory.st_mode & 0o022 != 0 && directory.st_mode & STICKY == 0;
    open.then(|| {
        "others can write to it and it is not sticky, so they could take the locks away; chmod go-w or chmod +t it".to_owned()
    })
}

/// The magic numbers of statfs(2), of file systems whose files other hosts see too.
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFE53_4D42, "smb2"),
    (0xFF53_4D42, "cifs"),
    (0x564C, "ncp"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "ceph"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x7461_636F, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x0BD0_0BD0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x2003_0528, "orangefs"),
    (0x1983_0326, "beegfs"),
    (0xAAD7_AAEA, "panfs"),
    (0xBEEF_DEAD, "snfs"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
];

const FUSE: u32 = 0x6573_5546;

/// What is mounted through FUSE, and virtiofs, all have one magic number, and most of it is
/// far away. These are known to be of this host.
const LOCAL_FUSE: &[&str] = &[
    "fuseblk",
    "fuse.bindfs",
    "fuse.encfs",
    "fuse.fuse-overlayfs",
    "fuse.gocryptfs",
    "fuse.mergerfs",
    "fuse.unionfs",
];

/// The name of a file system that reaches beyond this host, or may.
fn reaching_beyond(magic: u32, mounted_as: impl FnOnce() -> Option<String>) -> Option<String> {
    if magic == FUSE {
        let name = mounted_as().unwrap_or_else(|| "fuse".to_owned());
        return (!LOCAL_FUSE.contains(&name.as_str())).then_some(name);
    }
    let known = NETWORK.iter().find(|(number, _)| *number == magic)?;
    Some(known.1.to_owned())
}

/// Whether `file` is a regular file, ours, and has no second name; the reason if it is not.
pub(super) fn check_file(file: &Stat, own: u32) -> Result<(), String> {
    if FileType::from_raw_mode(file.st_mode) == FileType::Symlink {
        return Err("a symbolic link".to_owned());
    }
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        return Err("not a regular file".to_owned());
    }
    if file.st_uid != own {
        return Err(format!("belongs to another user (uid {})", file.st_uid));
    }
    if file.st_nlink > 1 {
        return Err("has a second name (a hard link)".to_owned());
    }
    Ok(())
}

/// What the name `file` in `directory` leads to, itself a symbolic link or not.
pub(super) fn stat(directory: impl AsFd, file: &str) -> rustix::io::Result<Stat> {
    rustix::fs::statat(directory, file, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        let none = || None;
        for magic in [0x6969, 0xFF53_4D42, 0x517B, 0x0102_1997, 0x00C3_6400] {
            assert!(reaching_beyond(magic, none).is_some(), "{magic:#x}");
        }
        // ext4, tmpfs, xfs, btrfs, overlayfs, zfs
        for magic in [
            0xEF53,
            0x0102_1994,
            0x5846_5342,
            0x9123_683E,
            0x794C_7630,
            0x2FC1_2FC1,
        ] {
            assert_eq!(reaching_beyond(magic, none), None, "{magic:#x}");
        }
        let fuse = |name: &str| reaching_beyond(FUSE, || Some(name.to_owned()));
        assert_eq!(fuse("fuse.sshfs").as_deref(), Some("fuse.sshfs"));
        assert_eq!(fuse("virtiofs").as_deref(), Some("virtiofs"));
        assert_eq!(fuse("fuse.fuse-overlayfs"), None);
        assert_eq!(reaching_beyond(FUSE, none).as_deref(), Some("fuse"));
    }

    #[test]
    fn the_local_place_depends_on_nothing_but_the_user() {
        let Place::Local(root) = Place::local(0) else {
            panic!("not local")
        };
        assert_eq!(root[0], ("/run/lock".into(), "distlock".into()));
        assert_eq!(root[1], ("/tmp".into(), "distlock-0".into()));
        let Place::Local(user) = Place::local(1000) else {
            panic!("not local")
        };
        assert_eq!(user[0].1, "distlock-1000");
        assert_eq!(user[1].1, "distlock-1000");
    }

    #[test]
    fn the_local_place_is_made_private_and_a_link_there_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let parent = temporary.path().to_owned();
        let missing = parent.join("missing");
        let place = Place::Local(vec![(missing, "a".into()), (parent.clone(), "b".into())]);
        assert!(place.open(Missing::Leave).unwrap().is_none());
        let opened = place.open(Missing::Make).unwrap().unwrap();
        let mode = rustix::fs::fstat(&opened).unwrap().st_mode;
        assert_eq!(mode & 0o7777, 0o700);
        assert!(place.open(Missing::Leave).unwrap().is_some());

        std::os::unix::fs::symlink(parent.join("b"), parent.join("c")).unwrap();
        let link = Place::Local(vec![(parent, "c".into())]);
        assert_eq!(
            link.open(Missing::Make).unwrap_err().kind,
            ErrorKind::Foreign
        );
    }
}
