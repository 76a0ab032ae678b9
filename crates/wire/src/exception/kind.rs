//! The kinds of system exceptions.

use std::fmt;

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
    /// Persistent storage failed.
    PersistStore "PERSIST_STORE",
    /// Operations were called in an impossible order.
    BadInvOrder "BAD_INV_ORDER",
    /// The call failed for a reason that may pass, so a repeated call may succeed. The completion
    /// status says whether the request was executed.
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
    /// A value cannot be converted between its native and its transmitted form.
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
    /// The transaction modes of client and target conflict.
    TransactionMode "TRANSACTION_MODE",
    /// The requested quality of service is impossible.
    BadQos "BAD_QOS",
    /// The activity context is malformed.
    InvalidActivity "INVALID_ACTIVITY",
    /// The activity is completed.
    ActivityCompleted "ACTIVITY_COMPLETED",
    /// The operation requires an activity.
    ActivityRequired "ACTIVITY_REQUIRED",
    /// The distributable thread was cancelled (dynamic scheduling).
    ThreadCancelled "THREAD_CANCELLED",
}

impl SystemExceptionKind {
    /// Returns the kind with this repository id: `IDL:omg.org/CORBA/NAME:1.0`, or
    /// `IDL:CORBA/NAME:1.0` from very old ORBs.
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
