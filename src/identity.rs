//! Who we are: what others are shown of this host, this user and this process.

use std::ffi::OsStr;
use std::path::Path;

use nix::unistd::{User, geteuid, gethostname};

use crate::model::Holder;

/// The holder that runs `program`, which is shown by its base name only.
pub fn holder(program: &OsStr, reason: Option<String>) -> Holder {
    let base = Path::new(program).file_name().unwrap_or(program);
    Holder {
        host: host(),
        user: user(),
        pid: std::process::id(),
        boot: boot(),
        program: base.to_string_lossy().into_owned(),
        reason,
    }
}

/// `user@host` of this process.
pub fn user_at_host() -> String {
    format!("{}@{}", user(), host())
}

fn host() -> String {
    gethostname().map_or_else(
        |_| "unknown".into(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The login name of the effective user, or its number. The file is asked first: the name
/// service switch costs more than a whole round trip to the server.
fn user() -> String {
    let uid = geteuid();
    let number = uid.as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let local = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    local
        .or_else(|| Some(User::from_uid(uid).ok()??.name))
        .unwrap_or(number)
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_base_name_of_a_program_is_shown() {
        let holder = holder(OsStr::new("/usr/local/bin/backup.sh"), None);
        assert_eq!(holder.program, "backup.sh");
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.user.is_empty() && !holder.host.is_empty());
        assert!(user_at_host().contains('@'));
    }
}
