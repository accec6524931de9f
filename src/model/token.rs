//! The random value that proves a hold, its public short id, and the fencing token.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The random value that proves who holds a lock: 128 bits as 22 base64url characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// A fresh one from the system's random source.
    ///
    /// # Errors
    /// The system has no random source (a chroot without the system call and the device).
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)?;
        Ok(Self::from_bits(bits))
    }

    /// The token of given bits, for tests that want to know it.
    pub fn from_bits(bits: [u8; 16]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(bits))
    }

    /// As written in a record.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The public name of one hold: 8 hexadecimal digits. It proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderId(String);

impl HolderId {
    /// A fresh one from the system's random source.
    ///
    /// # Errors
    /// The system has no random source.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bits = [0; 4];
        getrandom::fill(&mut bits)?;
        Ok(Self(format!("{:08x}", u32::from_be_bytes(bits))))
    }

    /// Reads 8 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        digits.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The 8 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that rises with each acquisition of a lock, for resources that can refuse a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_have_22_characters_and_differ() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.as_str().len(), 22);
        assert_ne!(one, two);
        assert_eq!(format!("{one:?}"), "Token(…)");
    }

    #[test]
    fn ids_round_trip_and_refuse_other_text() {
        let id = HolderId::random().unwrap();
        assert_eq!(HolderId::parse(id.as_str()), Some(id));
        for text in ["", "1234567", "123456789", "1234567g"] {
            assert_eq!(HolderId::parse(text), None);
        }
    }

    proptest! {
        #[test]
        fn tokens_say_all_of_their_bits(bits: [u8; 16]) {
            let token = Token::from_bits(bits);
            prop_assert_eq!(token.as_str().len(), 22);
            prop_assert_eq!(URL_SAFE_NO_PAD.decode(token.as_str()).unwrap(), bits);
        }

        #[test]
        fn ids_are_8_digits_in_either_case_and_nothing_else(text in "[0-9a-fA-F]{8}|\\PC{0,9}") {
            let digits = text.len() == 8 && text.chars().all(|c| c.is_ascii_hexdigit());
            let id = HolderId::parse(&text).map(|id| id.to_string());
            prop_assert_eq!(id, digits.then(|| text.to_lowercase()));
        }
    }
}
