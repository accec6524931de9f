//! What is presented to a store: the claim on a lock, and the hold that it became.

use super::{FencingToken, Holder, HolderId, LockKey, Record, Token, Ttl};
use crate::clock::ServerTime;

/// A claim on a lock. Token and record are made together; an unanswered claim is presented
/// again byte for byte, a refused or released one never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which lock.
    pub key: LockKey,
    /// The hold's public name.
    pub id: HolderId,
    /// The record that the store is to keep.
    pub record: Record,
    /// The record's JSON: the exact bytes that are compared.
    pub value: String,
    /// How long the store shall keep it without renewal.
    pub ttl: Ttl,
}

impl Claim {
    /// A fresh claim, with a token and an id of its own.
    ///
    /// # Errors
    /// The system has no random source.
    pub fn new(
        key: LockKey,
        holder: &Holder,
        since: ServerTime,
        ttl: Ttl,
    ) -> Result<Self, getrandom::Error> {
        let id = HolderId::random()?;
        let record = Record::new(&Token::random()?, &id, holder, since, Some(ttl));
        let value = record.to_json();
        Ok(Self {
            key,
            id,
            record,
            value,
            ttl,
        })
    }
}

/// A claim that was granted, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What was presented.
    pub claim: Claim,
    /// The fencing token it was granted with; `None` if the store gave none or never answered.
    pub fence: Option<FencingToken>,
}
