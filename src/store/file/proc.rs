//! Who has a lock, as the kernel shows it in proc(5): nothing here locks anything.

use std::fs;

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{fstat, major, minor};

/// The inode of the initial pid namespace (`PROC_PID_INIT_INO`): from there all pids are seen.
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

/// How /proc names a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// As /proc/locks writes them: `MAJOR:MINOR:INODE`, the device in hexadecimal.
    names: Vec<String>,
}

impl FileIdentity {
    /// That of an open file.
    ///
    /// stat(2) may tell a device and an inode that the kernel's table of locks does not use
    /// (subvolumes of btrfs, overlayfs); the descriptor's mount and fdinfo have those.
    pub(super) fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
        let info = info.unwrap_or_default();
        let device = (major(stat.st_dev), minor(stat.st_dev));
        let inode = field(&info, "ino:").unwrap_or(stat.st_ino);
        let mounted = field(&info, "mnt_id:").and_then(device_of_mount);
        let mut names = vec![written(device, inode), written(device, stat.st_ino)];
        names.extend(mounted.map(|device| written(device, inode)));
        names.dedup();
        Ok(Self { names })
    }

    /// Whether a line of /proc/locks or fdinfo says that someone has a lock on this file.
    ///
    /// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; a waiter's line has `->` second.
    fn is_locked_by(&self, line: &str) -> bool {
        let mut words = line.split_whitespace().skip_while(|word| *word == "lock:");
        words.nth(1) == Some("FLOCK")
            && words
                .nth(3)
                .is_some_and(|file| self.names.iter().any(|name| name == file))
    }
}

/// Whether the kernel's table has a lock on this file.
pub(super) fn is_locked(file: &FileIdentity) -> bool {
    // The table is handed out in pieces: an entry can be skipped when one before it goes away
    // between two of them. So "no" counts when it was read twice.
    (0..2).any(|_| {
        fs::read_to_string("/proc/locks")
            .is_ok_and(|table| table.lines().any(|line| file.is_locked_by(line)))
    })
}

/// Whether the process `pid` has this file open, and locked. `None`: it may not be looked at.
pub(super) fn is_locked_by_process(pid: u32, file: &FileIdentity) -> Option<bool> {
    let descriptors = match fs::read_dir(format!("/proc/{pid}/fdinfo")) {
        Ok(descriptors) => descriptors,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(false),
    };
    let locked = descriptors
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .any(|info| {
            info.lines()
                .any(|line| line.starts_with("lock:") && file.is_locked_by(line))
        });
    Some(locked)
}

/// Whether any process that we see has this file open, and locked.
pub(super) fn is_locked_by_any_process(file: &FileIdentity) -> bool {
    fs::read_dir("/proc").is_ok_and(|entries| {
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .any(|pid| is_locked_by_process(pid, file) == Some(true))
    })
}

/// Our own pid namespace; 0 where that cannot be told.
pub(super) fn pid_namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let link = link.to_string_lossy();
    let inode = link
        .strip_prefix("pid:[")
        .and_then(|rest| rest.strip_suffix(']'));
    inode.and_then(|inode| inode.parse().ok()).unwrap_or(0)
}

/// Whether /proc/locks may hide locks from a process of this namespace.
///
/// The kernel leaves out those whose taker has no pid there: it runs in another namespace, or
/// it has ended and a child keeps the descriptor.
pub(super) fn hides_locks(namespace: u64) -> bool {
    namespace != INITIAL_NAMESPACE
}

/// This boot's id; empty where the kernel does not tell it.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// The type of the file system that a descriptor's file is on, as mount(8) names it.
pub(super) fn file_system(file: impl AsFd) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()));
    let line = mount_line(field(&info.ok()?, "mnt_id:")?)?;
    let (_, after) = line.split_once(" - ")?;
    after.split(' ').next().map(str::to_owned)
}

fn written((major, minor): (u32, u32), inode: u64) -> String {
    format!("{major:02x}:{minor:02x}:{inode}")
}

/// The number after `name` in a file of /proc that has one field a line.
fn field(info: &str, name: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw` (proc(5))
fn mount_line(id: u64) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let id = id.to_string();
    let line = table
        .lines()
        .find(|line| line.split(' ').next() == Some(&id))?;
    Some(line.to_owned())
}

fn device_of_mount(id: u64) -> Option<(u32, u32)> {
    let line = mount_line(id)?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_lock_table_are_told_apart() {
        let file = FileIdentity {
            names: vec![written((254, 0), 1234)],
        };
        for (line, locked) in [
            ("1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", true),
            (
                "lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF",
                true,
            ),
            ("12: FLOCK  ADVISORY  READ 0 fe:00:1234 0 EOF", true),
            ("1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", false),
            ("1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", false),
            ("1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF", false),
            ("1: FLOCK  ADVISORY  WRITE 1234 fe:01:1234 0 EOF", false),
            ("", false),
        ] {
            assert_eq!(file.is_locked_by(line), locked, "{line}");
        }
    }

    #[test]
    fn a_lock_of_this_process_is_seen_in_each_way() {
        let file = tempfile::tempfile().unwrap();
        let identity = FileIdentity::of(&file).unwrap();
        assert!(!is_locked(&identity));
        assert!(!is_locked_by_any_process(&identity));
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert!(is_locked(&identity));
        assert_eq!(
            is_locked_by_process(std::process::id(), &identity),
            Some(true)
        );
        assert!(is_locked_by_any_process(&identity));
        assert_ne!(pid_namespace(), 0);
        assert_eq!(boot_id().len(), 36);
    }
}
