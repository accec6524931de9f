//! Files of this host.
use super::{Access, ErrorKind, Opened, ServerUrl, StoreError};
pub(super) const SCHEMES: &[&str] = &["file", "local"];
pub(super) fn open(_server: &ServerUrl, _access: &Access) -> Opened {
    Err(StoreError::new(ErrorKind::Unsupported, "not built yet"))
}
