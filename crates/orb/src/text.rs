//! Text from peers for one line of a log: bounded, without control characters, line separators and
//! marks of text direction.

use std::fmt::{self, Write};

pub(crate) const MAX_SHOWN: usize = 256;
/// Maximum number of bytes of a message of the ORB, which may contain text of a peer.
pub(crate) const MAX_MESSAGE: usize = 1024;

#[cold]
pub(crate) fn join(values: impl Iterator<Item = impl ToString>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// Special characters are escaped. Output of more than [`MAX_SHOWN`] bytes is truncated, and the number of `octets` is
/// added.
#[cold]
pub(crate) fn shown(octets: &[u8]) -> String {
    Escaped { octets, most: MAX_SHOWN }.to_string()
}

/// Text that [`shown`] returned is not escaped a second time.
pub(crate) fn message(text: &str) -> Escaped<'_> {
    Escaped { octets: text.as_bytes(), most: MAX_MESSAGE }
}

pub(crate) struct Escaped<'o> {
    octets: &'o [u8],
    most: usize,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = self.most;
        for chunk in self.octets.utf8_chunks() {
            for character in chunk.valid().chars() {
                let escape = escape(character);
                let len = match escape {
                    None => character.len_utf8(),
                    Some(Escape::Letter(_)) => 2,
                    Some(Escape::Number) => 4 + (35 - (character as u32 | 1).leading_zeros() as usize) / 4,
                };
                let Some(left) = room.checked_sub(len) else { return self.cut(f) };
                room = left;
                match escape {
                    None => f.write_char(character)?,
                    Some(Escape::Letter(letter)) => write!(f, "\\{letter}")?,
                    Some(Escape::Number) => write!(f, "\\u{{{:x}}}", character as u32)?,
                }
            }
            for octet in chunk.invalid() {
                let Some(left) = room.checked_sub(4) else { return self.cut(f) };
                room = left;
                write!(f, "\\x{octet:02x}")?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Escape {
    Letter(char),
    Number,
}

fn escape(character: char) -> Option<Escape> {
    match character {
        '\0' => Some(Escape::Letter('0')),
        '\t' => Some(Escape::Letter('t')),
        '\n' => Some(Escape::Letter('n')),
        '\r' => Some(Escape::Letter('r')),
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
            Some(Escape::Number)
        }
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => Some(Escape::Number),
        _ if character.is_control() => Some(Escape::Number),
        _ => None,
    }
}

impl Escaped<'_> {
    fn cut(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "... ({} octets)", self.octets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in ["", "echo", "IDL:acme.com/Größe:1.0", "it's \"quoted\" \\ and 漢字 🙂"] {
            assert_eq!(shown(text.as_bytes()), text);
            assert_eq!(message(text).to_string(), text);
        }
    }

    #[test]
    fn special_characters_of_a_peer_are_escaped() {
        let text = "a\nb\r\x1b[2Jc\0\u{202e}d\u{2028}\u{85}\u{feff}\u{7f}\t";
        assert_eq!(shown(text.as_bytes()), r"a\nb\r\u{1b}[2Jc\0\u{202e}d\u{2028}\u{85}\u{feff}\u{7f}\t");
        assert_eq!(shown(b"\xffop\xc3"), r"\xffop\xc3");
        for octet in 0..=255 {
            let line = shown(&[octet]);
            assert!(line.chars().all(|c| !c.is_control()), "{octet}: {line:?}");
        }
    }

    #[test]
    fn long_text_is_cut_and_its_length_is_added() {
        assert_eq!(shown(&[b'x'; 256]), "x".repeat(256));
        assert_eq!(shown(&[b'x'; 8 << 20]), format!("{}... (8388608 octets)", "x".repeat(256)));
        assert_eq!(shown("ä".repeat(200).as_bytes()), format!("{}... (400 octets)", "ä".repeat(128)));
        let escaped = shown(&[b'\n'; 1000]);
        assert_eq!(escaped, format!("{}... (1000 octets)", r"\n".repeat(128)));
        assert_eq!(message(&escaped).to_string(), escaped, "escaped text must not be escaped again");
    }
}
