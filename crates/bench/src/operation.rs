//! The operations of idl/cubit.idl that are called, and their message sizes.

use std::fmt;

use crate::Failure;
#[cfg(test)]
use crate::baseline::MessageSizes;

/// One operation with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// No argument, no result.
    Nothing,
    /// Sends and returns an octet.
    Octet,
    /// Sends and returns a short.
    Short,
    /// Sends and returns a long.
    Long,
    /// Sends and returns a structure of octet, long and short.
    Struct,
    /// Sends and returns this number of longs.
    Longs(usize),
    /// Sends and returns this number of structures.
    Structs(usize),
    /// Sends and returns this number of octets.
    Octets(usize),
    /// Sends and returns a string of this length.
    Text(usize),
    /// Sends an octet as a oneway.
    Oneway,
    /// Sends this number of longs, returns their number.
    TakeLongs(usize),
    /// Sends this number of octets, returns their number.
    TakeOctets(usize),
}

/// Maximum size in bytes of an argument, without the length of a sequence.
const MOST_OCTETS: usize = 64 << 20;

impl Operation {
    /// Operations that `call` measures by default.
    pub const USUAL: [Operation; 6] = [
        Operation::Octet,
        Operation::Long,
        Operation::Struct,
        Operation::Longs(4),
        Operation::Longs(1024),
        Operation::Oneway,
    ];

    /// Returns the operation with a name such as `octet` or `longs1024`.
    ///
    /// # Errors
    /// There is no such operation; the text lists the operations.
    pub fn from_name(name: &str) -> Result<Operation, Failure> {
        let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: Option<usize> = name[words.len()..].parse().ok();
        let found = match (words, number) {
            ("nothing", None) => Some(Operation::Nothing),
            ("octet", None) => Some(Operation::Octet),
            ("short", None) => Some(Operation::Short),
            ("long", None) => Some(Operation::Long),
            ("struct", None) => Some(Operation::Struct),
            ("oneway", None) => Some(Operation::Oneway),
            ("longs", Some(count)) => Some(Operation::Longs(count)),
            ("structs", Some(count)) => Some(Operation::Structs(count)),
            ("octets", Some(count)) => Some(Operation::Octets(count)),
            ("string", Some(count)) => Some(Operation::Text(count)),
            ("take_longs", Some(count)) => Some(Operation::TakeLongs(count)),
            ("take_octets", Some(count)) => Some(Operation::TakeOctets(count)),
            _ => None,
        };
        // The number is checked before the size of the body is computed, which is a few bytes for
        // each element.
        let bounded = found.filter(|_| number.unwrap_or(0) <= MOST_OCTETS);
        bounded.filter(|operation| operation.body() <= MOST_OCTETS + 4).ok_or_else(|| {
            Failure::new(format!(
                "there is no operation `{name}`; there are nothing, octet, short, long, struct, oneway, and longsN, structsN, octetsN, \
                 stringN, take_longsN and take_octetsN with a number of elements that take up to {MOST_OCTETS} octets"
            ))
        })
    }

    /// Returns true if the operation has no reply.
    #[must_use]
    pub fn is_oneway(self) -> bool {
        self == Operation::Oneway
    }

    /// Returns true if clients make one additional call first and compare its whole result.
    pub(crate) fn compares_first(self) -> bool {
        matches!(self, Operation::Longs(_) | Operation::Structs(_) | Operation::Octets(_) | Operation::Text(_))
    }

    #[cfg(test)]
    pub(crate) fn idl_name(self) -> &'static str {
        match self {
            Operation::Nothing => "echo_nothing",
            Operation::Octet => "echo_octet",
            Operation::Short => "echo_short",
            Operation::Long => "echo_long",
            Operation::Struct => "echo_struct",
            Operation::Longs(_) => "echo_longs",
            Operation::Structs(_) => "echo_structs",
            Operation::Octets(_) => "echo_octets",
            Operation::Text(_) => "echo_string",
            Operation::TakeLongs(_) => "take_longs",
            Operation::TakeOctets(_) => "take_octets",
            Operation::Oneway => "take_octet",
        }
    }

    /// Returns the size in bytes of the argument in CDR (CORBA 3.3 part 2, 9.3), aligned at its
    /// beginning.
    fn body(self) -> usize {
        match self {
            Operation::Nothing => 0,
            Operation::Octet | Operation::Oneway => 1,
            Operation::Short => 2,
            Operation::Long => 4,
            // Octet, padding of 3, long, short.
            Operation::Struct => 10,
            Operation::Longs(count) | Operation::TakeLongs(count) => 4 + 4 * count,
            // The first element begins at 4 and takes 10 bytes. Each further one begins 2 after a
            // multiple of 4: octet, padding of 1, long, short.
            Operation::Structs(0) => 4,
            Operation::Structs(count) => 4 + 10 + 8 * (count - 1),
            Operation::Octets(count) | Operation::TakeOctets(count) => 4 + count,
            // The NUL is sent too.
            Operation::Text(count) => 4 + count + 1,
        }
    }

    /// Returns true if the result has the length of the argument.
    #[must_use]
    pub fn echoes(self) -> bool {
        !matches!(self, Operation::Oneway | Operation::TakeLongs(_) | Operation::TakeOctets(_))
    }

    /// Returns an operation with an octet sequence whose messages have the same size. `None` for a
    /// oneway, and for arguments smaller than an empty sequence.
    #[must_use]
    pub fn as_octets(self) -> Option<Operation> {
        let length = self.body().checked_sub(4)?;
        match self {
            Operation::Oneway => None,
            _ if self.echoes() => Some(Operation::Octets(length)),
            _ => Some(Operation::TakeOctets(length)),
        }
    }

    /// Returns the GIOP 1.2 message sizes for an object key of this length.
    #[cfg(test)]
    pub(crate) fn sizes(self, key: usize) -> MessageSizes {
        let result = if self.echoes() { self.body() } else { 4 };
        let sizes = MessageSizes::giop(key, self.idl_name().len(), self.body(), result);
        if self.is_oneway() { MessageSizes { reply: 0, ..sizes } } else { sizes }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Nothing => f.write_str("nothing"),
            Operation::Octet => f.write_str("octet"),
            Operation::Short => f.write_str("short"),
            Operation::Long => f.write_str("long"),
            Operation::Struct => f.write_str("struct"),
            Operation::Longs(count) => write!(f, "longs{count}"),
            Operation::Structs(count) => write!(f, "structs{count}"),
            Operation::Octets(count) => write!(f, "octets{count}"),
            Operation::Text(count) => write!(f, "string{count}"),
            Operation::Oneway => f.write_str("oneway"),
            Operation::TakeLongs(count) => write!(f, "take_longs{count}"),
            Operation::TakeOctets(count) => write!(f, "take_octets{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let single = ["nothing", "octet", "short", "long", "struct", "oneway"];
        let many = ["longs4", "structs1024", "octets0", "string20", "take_longs4", "take_octets16777216"];
        for name in single.into_iter().chain(many) {
            assert_eq!(Operation::from_name(name).unwrap().to_string(), name);
        }
        assert_eq!(Operation::from_name("octets67108864").unwrap(), Operation::Octets(64 << 20));
        assert_eq!(Operation::from_name("longs16777216").unwrap(), Operation::Longs(16 << 20));
        let large = ["octets67108865", "longs16777217", "structs8388609", "longs18446744073709551615"];
        for name in large.into_iter().chain(["", "octet4", "longs", "longs99999999999999999999", "longs-1", "4"]) {
            assert!(Operation::from_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn bodies_have_their_gaps() {
        assert_eq!(Operation::Structs(3).body(), 4 + 10 + 8 + 8);
        assert_eq!(Operation::Longs(1024).body(), 4100);
        assert_eq!(Operation::Structs(3).as_octets(), Some(Operation::Octets(26)));
        assert_eq!(Operation::TakeLongs(3).as_octets(), Some(Operation::TakeOctets(12)));
        assert_eq!((Operation::Octet.as_octets(), Operation::Oneway.as_octets()), (None, None));
        assert_eq!(Operation::Oneway.sizes(12).reply, 0);
        assert_eq!(Operation::Octet.sizes(12).request, 65);
    }
}
