//! The operations of idl/cubit.idl that benchmarks call, and the sizes of their messages.

use std::fmt;

use crate::Failure;
#[cfg(test)]
use crate::baseline::MessageSizes;

/// An operation with the size of its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredOperation {
    /// Sends and returns nothing.
    EmptyCall,
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
    /// Sends and returns this number of the structures of [`Struct`](Self::Struct).
    Structs(usize),
    /// Sends and returns this number of octets.
    Octets(usize),
    /// Sends and returns a string of this length in bytes.
    String(usize),
    /// Sends an octet in a oneway.
    Oneway,
    /// Sends this number of longs and returns the number.
    TakeLongs(usize),
    /// Sends this number of octets and returns the number.
    TakeOctets(usize),
    /// [`Octets`](Self::Octets) in memory that Corelane lends, over transports that lend.
    LentOctets(usize),
    /// [`TakeOctets`](Self::TakeOctets) in memory that Corelane lends.
    TakeLentOctets(usize),
    /// [`Longs`](Self::Longs), whose result Corelane receives in memory of the caller.
    IntoLongs(usize),
    /// [`Structs`](Self::Structs), whose result Corelane receives in memory of the caller.
    IntoStructs(usize),
}

/// Maximum size in bytes of an argument, without the length field of a sequence.
const MAX_OCTETS: usize = 64 << 20;

impl MeasuredOperation {
    /// Operations that the benchmarks `call` and `floor` measure by default.
    pub const DEFAULT_OPERATIONS: [MeasuredOperation; 6] = [
        MeasuredOperation::Octet,
        MeasuredOperation::Long,
        MeasuredOperation::Struct,
        MeasuredOperation::Longs(4),
        MeasuredOperation::Longs(1024),
        MeasuredOperation::Oneway,
    ];

    /// Returns the operation with a name such as `octet` or `longs1024`.
    ///
    /// # Errors
    /// No operation has this name, or its argument is larger than 64 MiB. The text of the error
    /// lists the names.
    pub fn from_name(name: &str) -> Result<MeasuredOperation, Failure> {
        let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: Option<usize> = name[words.len()..].parse().ok();
        let found = match (words, number) {
            ("nothing", None) => Some(MeasuredOperation::EmptyCall),
            ("octet", None) => Some(MeasuredOperation::Octet),
            ("short", None) => Some(MeasuredOperation::Short),
            ("long", None) => Some(MeasuredOperation::Long),
            ("struct", None) => Some(MeasuredOperation::Struct),
            ("oneway", None) => Some(MeasuredOperation::Oneway),
            ("longs", Some(count)) => Some(MeasuredOperation::Longs(count)),
            ("structs", Some(count)) => Some(MeasuredOperation::Structs(count)),
            ("octets", Some(count)) => Some(MeasuredOperation::Octets(count)),
            ("string", Some(count)) => Some(MeasuredOperation::String(count)),
            ("take_longs", Some(count)) => Some(MeasuredOperation::TakeLongs(count)),
            ("take_octets", Some(count)) => Some(MeasuredOperation::TakeOctets(count)),
            ("lent_octets", Some(count)) => Some(MeasuredOperation::LentOctets(count)),
            ("take_lent_octets", Some(count)) => Some(MeasuredOperation::TakeLentOctets(count)),
            ("into_longs", Some(count)) => Some(MeasuredOperation::IntoLongs(count)),
            ("into_structs", Some(count)) => Some(MeasuredOperation::IntoStructs(count)),
            _ => None,
        };
        let bounded = found.filter(|_| number.unwrap_or(0) <= MAX_OCTETS);
        bounded.filter(|operation| operation.body() <= MAX_OCTETS + 4).ok_or_else(|| {
            Failure::new(format!(
                "there is no operation `{name}`; there are nothing, octet, short, long, struct, oneway, and longsN, structsN, octetsN, \
                 stringN, take_longsN, take_octetsN, lent_octetsN, take_lent_octetsN, into_longsN and into_structsN with a number of elements that take up to {MAX_OCTETS} octets"
            ))
        })
    }

    /// Returns true if the operation has no reply.
    #[must_use]
    pub fn is_oneway(self) -> bool {
        self == MeasuredOperation::Oneway
    }

    pub(crate) fn has_comparison_call(self) -> bool {
        matches!(
            self,
            MeasuredOperation::Longs(_)
                | MeasuredOperation::Structs(_)
                | MeasuredOperation::Octets(_)
                | MeasuredOperation::LentOctets(_)
                | MeasuredOperation::String(_)
                | MeasuredOperation::IntoLongs(_)
                | MeasuredOperation::IntoStructs(_)
        )
    }

    /// Returns the form of the operation that every ORB has. It copies octets, and receives results
    /// in memory of the ORB.
    pub(crate) fn copied(self) -> Self {
        match self {
            MeasuredOperation::LentOctets(count) => MeasuredOperation::Octets(count),
            MeasuredOperation::TakeLentOctets(count) => MeasuredOperation::TakeOctets(count),
            MeasuredOperation::IntoLongs(count) => MeasuredOperation::Longs(count),
            MeasuredOperation::IntoStructs(count) => MeasuredOperation::Structs(count),
            other => other,
        }
    }

    #[cfg(test)]
    pub(crate) fn idl_name(self) -> &'static str {
        match self.copied() {
            MeasuredOperation::EmptyCall => "echo_nothing",
            MeasuredOperation::Octet => "echo_octet",
            MeasuredOperation::Short => "echo_short",
            MeasuredOperation::Long => "echo_long",
            MeasuredOperation::Struct => "echo_struct",
            MeasuredOperation::Longs(_) | MeasuredOperation::IntoLongs(_) => "echo_longs",
            MeasuredOperation::Structs(_) | MeasuredOperation::IntoStructs(_) => "echo_structs",
            MeasuredOperation::Octets(_) | MeasuredOperation::LentOctets(_) => "echo_octets",
            MeasuredOperation::String(_) => "echo_string",
            MeasuredOperation::TakeLongs(_) => "take_longs",
            MeasuredOperation::TakeOctets(_) | MeasuredOperation::TakeLentOctets(_) => "take_octets",
            MeasuredOperation::Oneway => "take_octet",
        }
    }

    /// Returns the size in bytes of the argument in CDR (CORBA 3.3 part 2, 9.3), aligned at its
    /// first byte.
    fn body(self) -> usize {
        match self.copied() {
            MeasuredOperation::EmptyCall => 0,
            MeasuredOperation::Octet | MeasuredOperation::Oneway => 1,
            MeasuredOperation::Short => 2,
            MeasuredOperation::Long => 4,
            // An octet, 3 bytes of padding, a long, a short.
            MeasuredOperation::Struct => 10,
            MeasuredOperation::Longs(count)
            | MeasuredOperation::TakeLongs(count)
            | MeasuredOperation::IntoLongs(count) => 4 + 4 * count,
            // The first structure begins at offset 4 and takes 10 bytes. Each further structure takes 8,
            // of which structure is padding.
            MeasuredOperation::Structs(0) | MeasuredOperation::IntoStructs(0) => 4,
            MeasuredOperation::Structs(count) | MeasuredOperation::IntoStructs(count) => 4 + 10 + 8 * (count - 1),
            MeasuredOperation::Octets(count)
            | MeasuredOperation::TakeOctets(count)
            | MeasuredOperation::LentOctets(count)
            | MeasuredOperation::TakeLentOctets(count) => 4 + count,
            MeasuredOperation::String(count) => 4 + count + 1,
        }
    }

    /// Returns true if the operation returns its argument or has no argument.
    #[must_use]
    pub fn is_echo(self) -> bool {
        use MeasuredOperation::{Oneway, TakeLongs, TakeOctets};
        !matches!(self.copied(), Oneway | TakeLongs(_) | TakeOctets(_))
    }

    /// Returns the operation on an octet sequence whose argument is as large as the argument of
    /// this operation. Returns `None` for a oneway, and for an argument smaller than an empty
    /// sequence.
    #[must_use]
    pub fn equally_sized_octets(self) -> Option<MeasuredOperation> {
        let length = self.body().checked_sub(4)?;
        match self {
            MeasuredOperation::Oneway => None,
            _ if self.is_echo() => Some(MeasuredOperation::Octets(length)),
            _ => Some(MeasuredOperation::TakeOctets(length)),
        }
    }

    #[cfg(test)]
    pub(crate) fn sizes(self, key: usize) -> MessageSizes {
        let result = if self.is_echo() { self.body() } else { 4 };
        let sizes = MessageSizes::giop(key, self.idl_name().len(), self.body(), result);
        if self.is_oneway() { MessageSizes { reply: 0, ..sizes } } else { sizes }
    }
}

impl fmt::Display for MeasuredOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasuredOperation::EmptyCall => f.write_str("nothing"),
            MeasuredOperation::Octet => f.write_str("octet"),
            MeasuredOperation::Short => f.write_str("short"),
            MeasuredOperation::Long => f.write_str("long"),
            MeasuredOperation::Struct => f.write_str("struct"),
            MeasuredOperation::Longs(count) => write!(f, "longs{count}"),
            MeasuredOperation::Structs(count) => write!(f, "structs{count}"),
            MeasuredOperation::Octets(count) => write!(f, "octets{count}"),
            MeasuredOperation::String(count) => write!(f, "string{count}"),
            MeasuredOperation::Oneway => f.write_str("oneway"),
            MeasuredOperation::TakeLongs(count) => write!(f, "take_longs{count}"),
            MeasuredOperation::TakeOctets(count) => write!(f, "take_octets{count}"),
            MeasuredOperation::LentOctets(count) => write!(f, "lent_octets{count}"),
            MeasuredOperation::TakeLentOctets(count) => write!(f, "take_lent_octets{count}"),
            MeasuredOperation::IntoLongs(count) => write!(f, "into_longs{count}"),
            MeasuredOperation::IntoStructs(count) => write!(f, "into_structs{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_are_parsed_back() {
        let single = ["nothing", "octet", "short", "long", "struct", "oneway"];
        let many = ["longs4", "structs1024", "octets0", "string20", "take_longs4", "take_octets16777216"];
        let lent = ["lent_octets65536", "take_lent_octets1"];
        for name in single.into_iter().chain(many).chain(lent).chain(["into_longs4", "into_structs3"]) {
            assert_eq!(MeasuredOperation::from_name(name).unwrap().to_string(), name);
        }
        assert_eq!(MeasuredOperation::from_name("octets67108864").unwrap(), MeasuredOperation::Octets(64 << 20));
        assert_eq!(MeasuredOperation::from_name("longs16777216").unwrap(), MeasuredOperation::Longs(16 << 20));
        let large = ["octets67108865", "longs16777217", "structs8388609", "longs18446744073709551615"];
        for name in large.into_iter().chain(["", "octet4", "longs", "longs99999999999999999999", "longs-1", "4"]) {
            assert!(MeasuredOperation::from_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn argument_sizes_include_padding() {
        assert_eq!(MeasuredOperation::Structs(3).body(), 4 + 10 + 8 + 8);
        assert_eq!(MeasuredOperation::Longs(1024).body(), 4100);
        assert_eq!(MeasuredOperation::Structs(3).equally_sized_octets(), Some(MeasuredOperation::Octets(26)));
        assert_eq!(MeasuredOperation::TakeLongs(3).equally_sized_octets(), Some(MeasuredOperation::TakeOctets(12)));
        assert_eq!(
            (MeasuredOperation::Octet.equally_sized_octets(), MeasuredOperation::Oneway.equally_sized_octets()),
            (None, None)
        );
        assert_eq!(MeasuredOperation::Oneway.sizes(12).reply, 0);
        assert_eq!(MeasuredOperation::Octet.sizes(12).request, 65);
    }
}
