//! System exceptions: their names, minor codes and wire form (CORBA 3.0.3 section 4.12).

pub mod minor;

use std::fmt;

use crate::cdr::{CdrError, Decoder, Encoder};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// The kind of a system exception.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum SystemExceptionKind {
            $($(#[$doc])* $name,)*
        }

        impl SystemExceptionKind {
            /// All kinds.
            pub const ALL: &'static [SystemExceptionKind] = &[$(SystemExceptionKind::$name,)*];

            /// Returns the name in the specification: `BAD_PARAM`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(SystemExceptionKind::$name => $text,)*
                }
            }

            /// Returns the repository id: `IDL:omg.org/CORBA/BAD_PARAM:1.0`.
            #[must_use]
            pub const fn repository_id(self) -> &'static str {
                match self {
                    $(SystemExceptionKind::$name => concat!("IDL:omg.org/CORBA/", $text, ":1.0"),)*
                }
            }

            /// Returns the kind with this name.
            #[must_use]
            pub fn from_name(name: &[u8]) -> Option<SystemExceptionKind> {
                $(if name == $text.as_bytes() {
                    return Some(SystemExceptionKind::$name);
                })*
                None
            }
        }
    };
}

kinds! {
    /// An error that no other kind describes.
    Unknown "UNKNOWN",
    /// An invalid argument.
    BadParam "BAD_PARAM",
    /// Out of memory.
    NoMemory "NO_MEMORY",
    /// A limit of the implementation.
    ImpLimit "IMP_LIMIT",
    /// The connection broke during a call.
    CommFailure "COMM_FAILURE",
    /// A malformed or unusable reference.
    InvObjref "INV_OBJREF",
    /// The caller lacks the permission.
    NoPermission "NO_PERMISSION",
    /// A fault inside the ORB.
    Internal "INTERNAL",
    /// A value cannot be written or read.
    Marshal "MARSHAL",
    /// The ORB could not start.
    Initialize "INITIALIZE",
    /// Not implemented.
    NoImplement "NO_IMPLEMENT",
    /// A malformed TypeCode.
    BadTypecode "BAD_TYPECODE",
    /// The target has no such operation.
    BadOperation "BAD_OPERATION",
    /// Resources are used up.
    NoResources "NO_RESOURCES",
    /// A deferred reply has not arrived yet.
    NoResponse "NO_RESPONSE",
    /// Storage failed.
    PersistStore "PERSIST_STORE",
    /// Operations were called in an impossible order.
    BadInvOrder "BAD_INV_ORDER",
    /// Nothing was executed, and the same call may succeed later.
    Transient "TRANSIENT",
    /// Memory could not be freed.
    FreeMem "FREE_MEM",
    /// An invalid identifier.
    InvIdent "INV_IDENT",
    /// An invalid flag.
    InvFlag "INV_FLAG",
    /// The interface repository failed.
    IntfRepos "INTF_REPOS",
    /// A malformed context object.
    BadContext "BAD_CONTEXT",
    /// The object adapter failed.
    ObjAdapter "OBJ_ADAPTER",
    /// The other side's representation does not have the value.
    DataConversion "DATA_CONVERSION",
    /// The object does not exist, permanently.
    ObjectNotExist "OBJECT_NOT_EXIST",
    /// A transaction is required.
    TransactionRequired "TRANSACTION_REQUIRED",
    /// The transaction was rolled back.
    TransactionRolledback "TRANSACTION_ROLLEDBACK",
    /// The transaction is malformed.
    InvalidTransaction "INVALID_TRANSACTION",
    /// The policies contradict each other.
    InvPolicy "INV_POLICY",
    /// The two sides have no common code set.
    CodesetIncompatible "CODESET_INCOMPATIBLE",
    /// The reference would need a new binding, which a policy forbids.
    Rebind "REBIND",
    /// A deadline passed.
    Timeout "TIMEOUT",
    /// There is no transaction service.
    TransactionUnavailable "TRANSACTION_UNAVAILABLE",
    /// The transaction modes do not fit.
    TransactionMode "TRANSACTION_MODE",
    /// An impossible quality of service.
    BadQos "BAD_QOS",
    /// The activity context is malformed.
    InvalidActivity "INVALID_ACTIVITY",
    /// The activity is completed.
    ActivityCompleted "ACTIVITY_COMPLETED",
    /// An activity is required.
    ActivityRequired "ACTIVITY_REQUIRED",
    /// The distributable thread was cancelled (dynamic scheduling).
    ThreadCancelled "THREAD_CANCELLED",
}

impl SystemExceptionKind {
    /// Returns the kind with this repository id. Accepts the ids of very old ORBs too
    /// (`IDL:CORBA/NAME:1.0`).
    #[must_use]
    pub fn from_repository_id(id: impl AsRef<[u8]>) -> Option<SystemExceptionKind> {
        let id = id.as_ref();
        let scoped = id.strip_prefix(b"IDL:omg.org/CORBA/").or_else(|| id.strip_prefix(b"IDL:CORBA/"))?;
        SystemExceptionKind::from_name(scoped.strip_suffix(b":1.0")?)
    }
}

impl fmt::Display for SystemExceptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

    /// Returns the status with this number; [`Maybe`](Completion::Maybe) for an undefined one.
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
        e.write_raw(id);
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
        let octets = e.into_buffer();
        assert_eq!(octets[..5], [0, 0, 0, 30, b'I']);
        assert_eq!(octets[36..], [0x4f, 0x4d, 0, 3, 0, 0, 0, 2]);
        assert_eq!(SystemExceptionBody::read(&mut Decoder::new(&octets, Endian::Big)), Ok(body));
        let foreign = [&[0, 0, 0, 2, b'X', 0, 0, 0][..], &[0, 0, 0, 9, 0, 0, 0, 1]].concat();
        let read = SystemExceptionBody::read(&mut Decoder::new(&foreign, Endian::Big)).unwrap();
        assert_eq!((read.kind, read.minor & 0xfff, read.completed), (SystemExceptionKind::Unknown, 2, Completion::No));
    }
}
