//! Where a reply ends: the limits that a reply must keep before it is decoded.
//!
//! The decoder trusts the lengths that it is sent; here nothing is trusted. Only the types of
//! RESP2 pass, because we never ask for RESP3 (<https://redis.io/docs/latest/develop/reference/protocol-spec/>).

use std::ops::Range;

/// A reply that is longer than this is refused.
pub(super) const MAX_REPLY: usize = 1 << 20;
const MAX_DEPTH: usize = 4;
const MAX_LINE: usize = 64 << 10;

/// Whether the first reply in a buffer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// It has this many bytes.
    Complete(usize),
    /// More must be read.
    Partial,
    /// It is not a reply, or not one that we would read.
    Refused(&'static str),
}

/// Finds the end of the first reply in `bytes`.
pub(super) fn scan(bytes: &[u8]) -> Frame {
    let mut open = [0_usize; MAX_DEPTH];
    let mut depth = 0;
    let mut at = 0;
    loop {
        let (next, items) = match element(bytes, at) {
            Ok(found) => found,
            Err(other) => return other,
        };
        at = next;
        if items > 0 {
            if depth == MAX_DEPTH {
                return Frame::Refused("its reply is nested too deeply");
            }
            open[depth] = items;
            depth += 1;
            continue;
        }
        while depth > 0 {
            open[depth - 1] -= 1;
            if open[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            return Frame::Complete(at);
        }
    }
}

/// The end of the element at `at`, and how many elements it announces.
fn element(bytes: &[u8], at: usize) -> Result<(usize, usize), Frame> {
    let Some(line) = line(bytes, at) else {
        let long = bytes.len() - at > MAX_LINE;
        return Err(if long { TOO_LONG } else { Frame::Partial });
    };
    let after = line.end + 2;
    match bytes[at] {
        b'+' | b'-' | b':' => Ok((after, 0)),
        b'*' => match length(&bytes[line])? {
            None => Ok((after, 0)),
            Some(items) => Ok((after, items)),
        },
        b'$' => match length(&bytes[line])? {
            None => Ok((after, 0)),
            Some(size) if after + size + 2 <= bytes.len() => Ok((after + size + 2, 0)),
            Some(_) => Err(Frame::Partial),
        },
        _ => Err(Frame::Refused("it does not speak the Redis protocol")),
    }
}

const TOO_LONG: Frame = Frame::Refused("its reply is too long");

/// The line that begins behind the type byte at `at`, without its end.
fn line(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + 1;
    let end = bytes
        .get(start..)?
        .windows(2)
        .position(|two| two == b"\r\n")?;
    Some(start..start + end)
}

/// An announced length; `None` stands for "null".
fn length(digits: &[u8]) -> Result<Option<usize>, Frame> {
    if digits == b"-1" {
        return Ok(None);
    }
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse::<usize>().ok());
    match number {
        Some(number) if number <= MAX_REPLY => Ok(Some(number)),
        Some(_) => Err(TOO_LONG),
        None => Err(Frame::Refused("it does not speak the Redis protocol")),
    }
}

/// The decoder wants UTF-8 in lines, while a server cuts error texts between any two bytes.
pub(super) fn make_text(frame: &mut [u8]) {
    if matches!(frame.first(), Some(b'+' | b'-')) && std::str::from_utf8(frame).is_err() {
        for byte in frame.iter_mut().filter(|byte| !byte.is_ascii()) {
            *byte = b'?';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_reply_is_partial_and_the_whole_is_complete() {
        let replies: [&[u8]; 8] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-17\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*4\r\n:1\r\n*2\r\n$1\r\nx\r\n*0\r\n$0\r\n\r\n:3\r\n",
        ];
        for reply in replies {
            for end in 0..reply.len() {
                assert_eq!(scan(&reply[..end]), Frame::Partial, "{reply:?} to {end}");
            }
            let mut more = reply.to_vec();
            more.extend_from_slice(b"+OK\r\n");
            assert_eq!(scan(&more), Frame::Complete(reply.len()));
        }
    }

    #[test]
    fn hostile_replies_are_refused_before_anything_is_allocated() {
        let hostile: [&[u8]; 9] = [
            b"$1048577\r\n",
            b"$99999999999999999999\r\n",
            b"*1048577\r\n",
            b"$-2\r\n",
            b"*x\r\n",
            b"%1\r\n",
            b"HTTP/1.1 400\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
            b"\x15\x03\x01\r\n",
        ];
        for reply in hostile {
            assert!(matches!(scan(reply), Frame::Refused(_)), "{reply:?}");
        }
        assert!(matches!(scan(&vec![b'+'; MAX_LINE + 2]), Frame::Refused(_)));
    }

    #[test]
    fn an_error_text_that_was_cut_inside_a_character_is_still_text() {
        let mut frame = b"-ERR '\xc3'\r\n".to_vec();
        make_text(&mut frame);
        assert_eq!(frame, b"-ERR '?'\r\n");
        let mut good = "-ERR 'é'\r\n".as_bytes().to_vec();
        make_text(&mut good);
        assert_eq!(good, "-ERR 'é'\r\n".as_bytes());
    }
}
