//! System exceptions: their names, minor codes and wire form (CORBA 3.0.3 section 4.12).

mod kind;
pub mod minor;

use crate::cdr::{CdrError, Decoder, Encoder};
pub use kind::SystemExceptionKind;

/// The completion status: whether the operation had run when the exception was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Completion {
    /// The operation had run.
    Yes,
    /// The operation had not run, and will not.
    No,
    /// It is unknown whether the operation ran.
    Maybe,
}

impl Completion {
    /// Returns the number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Completion::Yes => 0,
            Completion::No => 1,
            Completion::Maybe => 2,
        }
    }

    /// Returns the status with this number. An undefined number means [`Maybe`](Completion::Maybe).
    #[must_use]
    pub const fn from_number(number: u32) -> Completion {
        match number {
            0 => Completion::Yes,
            1 => Completion::No,
            _ => Completion::Maybe,
        }
    }
}

/// A system exception in its wire form.
///
/// ```text
/// string repository id | unsigned long minor | unsigned long completion: 0 yes, 1 no, 2 maybe
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SystemExceptionBody {
    /// The kind of the exception.
    pub kind: SystemExceptionKind,
    /// The minor code: vendor in the upper 20 bits, code in the lower 12.
    pub minor: u32,
    /// The completion status of the operation.
    pub completed: Completion,
}

impl SystemExceptionBody {
    /// Writes the body.
    pub fn write(&self, e: &mut Encoder<'_>) {
        let id = self.kind.repository_id().as_bytes();
        e.write_u32(u32::try_from(id.len() + 1).unwrap_or_default());
        e.write_bytes(id);
        e.write_u8(0);
        e.write_u32(self.minor);
        e.write_u32(self.completed.number());
    }

    /// Reads a body. An unknown exception becomes UNKNOWN minor 2 (CORBA 3.0.3 section 4.12.4).
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed.
    pub fn read(d: &mut Decoder<'_>) -> Result<SystemExceptionBody, CdrError> {
        let kind = SystemExceptionKind::from_repository_id(d.read_str_octets()?);
        let (minor, completed) = (d.read_u32()?, Completion::from_number(d.read_u32()?));
        Ok(match kind {
            Some(kind) => SystemExceptionBody { kind, minor, completed },
            None => SystemExceptionBody {
                kind: SystemExceptionKind::Unknown,
                minor: minor::unknown::NON_STANDARD_SYSTEM_EXCEPTION,
                completed,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;

    #[test]
    fn ids_and_kinds_are_each_others_inverse() {
        assert_eq!(SystemExceptionKind::ALL.len(), 40);
        for kind in SystemExceptionKind::ALL {
            assert_eq!(SystemExceptionKind::from_repository_id(kind.repository_id()), Some(*kind));
        }
        let of = |id: &str| SystemExceptionKind::from_repository_id(id);
        assert_eq!(of("IDL:CORBA/COMM_FAILURE:1.0"), Some(SystemExceptionKind::CommFailure));
        assert_eq!((of("IDL:omg.org/CORBA/NONE:1.0"), of("IDL:x/BAD_PARAM:1.0"), of("")), (None, None, None));
    }

    #[test]
    fn the_wire_form() {
        let body = SystemExceptionBody {
            kind: SystemExceptionKind::Timeout,
            minor: minor::timeout::REPLY_END_TIME,
            completed: Completion::Maybe,
        };
        let mut e = Encoder::new();
        e.set_endian(Endian::Big);
        body.write(&mut e);
        let octets = e.into_reusable_buffer();
        assert_eq!(octets[..5], [0, 0, 0, 30, b'I']);
        assert_eq!(octets[36..], [0x4f, 0x4d, 0, 3, 0, 0, 0, 2]);
        assert_eq!(SystemExceptionBody::read(&mut Decoder::new(&octets, Endian::Big)), Ok(body));
        let foreign = [&[0, 0, 0, 2, b'X', 0, 0, 0][..], &[0, 0, 0, 9, 0, 0, 0, 1]].concat();
        let read = SystemExceptionBody::read(&mut Decoder::new(&foreign, Endian::Big)).unwrap();
        assert_eq!((read.kind, read.minor & 0xfff, read.completed), (SystemExceptionKind::Unknown, 2, Completion::No));
    }
}
