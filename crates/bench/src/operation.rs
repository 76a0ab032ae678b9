//! The operations of idl/cubit.idl that are called, and the sizes of their messages.

use std::fmt;

use crate::Failure;
#[cfg(test)]
use crate::floor::Sizes;

/// One operation with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// No argument, no result.
    Nothing,
    /// An octet there and back.
    Octet,
    /// A short there and back.
    Short,
    /// A long there and back.
    Long,
    /// A structure of octet, long and short there and back.
    Struct,
    /// So many longs there and back.
    Longs(usize),
    /// So many of the structures there and back.
    Structs(usize),
    /// So many octets there and back.
    Octets(usize),
    /// A string of so many letters there and back.
    Text(usize),
    /// An octet there, nothing back.
    Oneway,
    /// So many longs there, their number back.
    TakeLongs(usize),
    /// So many octets there, their number back.
    TakeOctets(usize),
}

/// Arguments have at most so many octets, besides the length of a sequence.
const MOST_OCTETS: usize = 64 << 20;

impl Operation {
    /// What `call` measures unless it is told otherwise.
    pub const USUAL: [Operation; 6] = [
        Operation::Octet,
        Operation::Long,
        Operation::Struct,
        Operation::Longs(4),
        Operation::Longs(1024),
        Operation::Oneway,
    ];

    /// From its name, such as `octet` or `longs1024`.
    ///
    /// # Errors
    /// There is no such operation; the text lists them.
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
        // Bounded before the size of the body is worked out, which is a few octets for each element.
        let bounded = found.filter(|_| number.unwrap_or(0) <= MOST_OCTETS);
        bounded.filter(|operation| operation.body() <= MOST_OCTETS + 4).ok_or_else(|| {
            Failure::new(format!(
                "there is no operation `{name}`; there are nothing, octet, short, long, struct, oneway, and longsN, structsN, octetsN, \
                 stringN, take_longsN and take_octetsN with a number of elements that take up to {MOST_OCTETS} octets"
            ))
        })
    }

    /// Whether it has no reply.
    #[must_use]
    pub fn is_oneway(self) -> bool {
        self == Operation::Oneway
    }

    /// Whether clients make one call more than they are asked for, the first, and compare its whole result.
    pub(crate) fn compares_first(self) -> bool {
        matches!(self, Operation::Longs(_) | Operation::Structs(_) | Operation::Octets(_) | Operation::Text(_))
    }

    /// The name in idl/cubit.idl.
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

    /// Octets of the argument in CDR (CORBA 3.3 part 2, 9.3), aligned at its beginning.
    fn body(self) -> usize {
        match self {
            Operation::Nothing => 0,
            Operation::Octet | Operation::Oneway => 1,
            Operation::Short => 2,
            Operation::Long => 4,
            // Octet, gap of 3, long, short.
            Operation::Struct => 10,
            Operation::Longs(count) | Operation::TakeLongs(count) => 4 + 4 * count,
            // The first begins at 4 and takes 10, as above. Each further one begins 2 behind a multiple of 4: octet, gap of 1,
            // long, short.
            Operation::Structs(0) => 4,
            Operation::Structs(count) => 4 + 10 + 8 * (count - 1),
            Operation::Octets(count) | Operation::TakeOctets(count) => 4 + count,
            // The NUL travels too.
            Operation::Text(count) => 4 + count + 1,
        }
    }

    /// Whether the result is as long as the argument.
    #[must_use]
    pub fn echoes(self) -> bool {
        !matches!(self, Operation::Oneway | Operation::TakeLongs(_) | Operation::TakeOctets(_))
    }

    /// An octet sequence whose messages are as large; none for a oneway and for arguments smaller than an empty sequence.
    #[must_use]
    pub fn as_octets(self) -> Option<Operation> {
        let length = self.body().checked_sub(4)?;
        match self {
            Operation::Oneway => None,
            _ if self.echoes() => Some(Operation::Octets(length)),
            _ => Some(Operation::TakeOctets(length)),
        }
    }

    /// The sizes of its messages in GIOP 1.2, for an object key of this length.
    #[cfg(test)]
    pub(crate) fn sizes(self, key: usize) -> Sizes {
        let result = if self.echoes() { self.body() } else { 4 };
        let sizes = Sizes::giop(key, self.idl_name().len(), self.body(), result);
        if self.is_oneway() { Sizes { reply: 0, ..sizes } } else { sizes }
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
