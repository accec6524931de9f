//! One Redis or Valkey server.
use super::{Access, ErrorKind, Opened, ServerUrl, StoreError};
pub(super) const SCHEMES: &[&str] = &["redis", "rediss", "redis+unix", "unix", "valkey", "valkeys"];
pub(super) fn open(_server: &ServerUrl, _access: &Access) -> Opened {
    Err(StoreError::new(ErrorKind::Unsupported, "not built yet"))
}
