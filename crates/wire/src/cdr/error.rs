//! The errors of CDR, and the system exceptions that report them.

use std::fmt;

use crate::exception::{SystemExceptionKind, minor};

/// The reason why a value could not be written or read. The type has one byte, so that
/// `Result<u32, CdrError>` fits in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum CdrError {
    /// The input ends before the value does.
    Truncated = 1,
    /// The last octet of a string is not NUL.
    StringNotTerminated,
    /// A bounded string or wstring is longer than its bound.
    StringOverBound,
    /// A bounded sequence has more elements than its bound.
    SequenceOverBound,
    /// A count announces more elements than the unread bytes of the message can hold.
    CountExceedsInput,
    /// A length, count or size exceeds the receiver's [`Limits`](crate::Limits).
    LimitExceeded,
    /// A length or an offset does not fit in CDR's 32 bits.
    LengthOverflow,
    /// An enum value is not below the number of members.
    EnumOutOfRange,
    /// A character is not in the transmission code set, or octets are not text in that code set.
    CharacterNotInCodeSet,
    /// A string to be sent contains NUL.
    NulInString,
    /// A client's GIOP 1.0 message has wide data, which that version lacks (CORBA 3.0.3 section
    /// 15.3.1.6).
    WideInGiop10Request,
    /// A server's GIOP 1.0 message has wide data, which that version lacks.
    WideInGiop10Reply,
    /// No transmission code set is known for wide data that a server is to send or that was
    /// received.
    NoWideCodeSet,
    /// A client is to send wide data, but the object's reference gives no code set for it.
    NoWideCodeSetInReference,
    /// The length of a wchar or wstring is impossible in its code set.
    BadWideStringLength,
    /// Values are nested deeper than the receiver's [`Limits`](crate::Limits).
    NestingTooDeep,
    /// An encapsulation lacks its byte-order octet.
    EmptyEncapsulation,
    /// A half-octet of a fixed-point value is not a digit or sign, the value has more digits than
    /// its type, or the type does not have 1 to 31 digits.
    MalformedFixed,
    /// A discriminator, status or selector has a value that its type does not have.
    BadDiscriminator,
    /// A local object was to be sent.
    LocalObjectNotSendable,
    /// Borrowed text or elements need conversion, and the decoder has no
    /// [`Scratch`](crate::Scratch).
    MissingScratch,
    /// The type, version or form of the value is not supported.
    UnsupportedForm,
    /// A TypeCode's kind does not exist, or its parameters are impossible for its kind.
    BadTypeCode,
    /// The target of an indirection does not precede it in the message, is incomplete, or has the
    /// wrong kind.
    BadIndirection,
    /// A TypeCode has a member of a type that members cannot have.
    IllegalTypeCodeMember,
    /// A TypeCode contains the placeholder of a recursive type.
    IncompleteTypeCode,
    /// A value does not have the type that a TypeCode or the caller requires.
    TypeMismatch,
    /// The bytes are not a value (IDL `valuetype`): a tag or a chunk is malformed.
    MalformedValuetype,
    /// A value (IDL `valuetype`) does not have the type that the receiver expects.
    UnexpectedValuetype,
    /// A value's type has no registered factory, and the value cannot be truncated to a type that
    /// has one.
    NoValueFactory,
    /// A custom value must be converted to another form or to a value tree, which only the custom
    /// code of its type can do.
    CustomValueNotConvertible,
    /// The reference to be sent has no address, because its ORB listens at no address.
    ReferenceWithoutAddress,
    /// Decoding would exceed the memory that all concurrently decoded messages may take
    /// ([`MemoryAccount`](crate::cdr::MemoryAccount)), or the allocator refused a sequence.
    MemoryBudgetExceeded,
    /// A sequence has more elements than the caller's memory for it.
    ResultMemoryTooSmall,
}

impl CdrError {
    /// All errors.
    pub const ALL: &'static [CdrError] = &[
        CdrError::Truncated,
        CdrError::StringNotTerminated,
        CdrError::StringOverBound,
        CdrError::SequenceOverBound,
        CdrError::CountExceedsInput,
        CdrError::LimitExceeded,
        CdrError::LengthOverflow,
        CdrError::EnumOutOfRange,
        CdrError::CharacterNotInCodeSet,
        CdrError::NulInString,
        CdrError::WideInGiop10Request,
        CdrError::WideInGiop10Reply,
        CdrError::NoWideCodeSet,
        CdrError::NoWideCodeSetInReference,
        CdrError::BadWideStringLength,
        CdrError::NestingTooDeep,
        CdrError::EmptyEncapsulation,
        CdrError::MalformedFixed,
        CdrError::BadDiscriminator,
        CdrError::LocalObjectNotSendable,
        CdrError::MissingScratch,
        CdrError::UnsupportedForm,
        CdrError::BadTypeCode,
        CdrError::BadIndirection,
        CdrError::IllegalTypeCodeMember,
        CdrError::IncompleteTypeCode,
        CdrError::TypeMismatch,
        CdrError::MalformedValuetype,
        CdrError::UnexpectedValuetype,
        CdrError::NoValueFactory,
        CdrError::CustomValueNotConvertible,
        CdrError::ReferenceWithoutAddress,
        CdrError::MemoryBudgetExceeded,
        CdrError::ResultMemoryTooSmall,
    ];

    /// Returns the error that a minor code of Corelane reports; `None` for every other code.
    #[must_use]
    pub fn from_minor(code: u32) -> Option<CdrError> {
        let own = |error: &CdrError| {
            error.exception().1 == minor::CORELANE | u32::from(*error as u8) && error.minor() == code
        };
        CdrError::ALL.iter().copied().find(own)
    }

    /// Returns the system exception that reports this error.
    #[must_use]
    pub fn kind(self) -> SystemExceptionKind {
        self.exception().0
    }

    /// Returns the minor code that reports this error: the OMG's where one exists, otherwise a code
    /// of Corelane (docs/wire-extensions.md).
    #[must_use]
    pub fn minor(self) -> u32 {
        self.exception().1
    }

    fn exception(self) -> (SystemExceptionKind, u32) {
        use SystemExceptionKind::{
            BadParam, BadTypecode, DataConversion, ImpLimit, Internal, InvObjref, Marshal, NoImplement,
        };
        let own = minor::CORELANE | u32::from(self as u8);
        match self {
            CdrError::CharacterNotInCodeSet => (DataConversion, minor::data_conversion::CHARACTER_NOT_IN_CODE_SET),
            CdrError::NulInString => (BadParam, own),
            CdrError::WideInGiop10Request => (Marshal, minor::marshal::WIDE_FROM_CLIENT_IN_GIOP_1_0),
            CdrError::WideInGiop10Reply => (Marshal, minor::marshal::WIDE_FROM_SERVER_IN_GIOP_1_0),
            CdrError::NoWideCodeSet => (BadParam, minor::bad_param::NO_WIDE_CODE_SET),
            CdrError::NoWideCodeSetInReference => (InvObjref, minor::inv_objref::CODE_SET_COMPONENT_REQUIRED),
            CdrError::LocalObjectNotSendable => (Marshal, minor::marshal::LOCAL_OBJECT),
            CdrError::NoValueFactory => (Marshal, minor::marshal::NO_VALUE_FACTORY),
            CdrError::MissingScratch => (Internal, own),
            CdrError::IllegalTypeCodeMember => (BadTypecode, minor::bad_typecode::ILLEGITIMATE_MEMBER),
            CdrError::IncompleteTypeCode => (BadTypecode, minor::bad_typecode::INCOMPLETE),
            CdrError::TypeMismatch => (BadParam, own),
            CdrError::CustomValueNotConvertible => (NoImplement, own),
            CdrError::ReferenceWithoutAddress => (BadParam, own),
            CdrError::ResultMemoryTooSmall => (BadParam, own),
            CdrError::MemoryBudgetExceeded => (ImpLimit, own),
            _ => (Marshal, own),
        }
    }

    /// Returns a description of the error.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            CdrError::Truncated => "the octets end before the value does",
            CdrError::StringNotTerminated => "a string does not end with NUL",
            CdrError::StringOverBound => "a bounded string is longer than its bound",
            CdrError::SequenceOverBound => "a bounded sequence has more elements than its bound",
            CdrError::CountExceedsInput => "a count announces more elements than the message can hold",
            CdrError::LimitExceeded => "a length or count is above the configured limit",
            CdrError::LengthOverflow => "a length does not fit in 32 bits",
            CdrError::EnumOutOfRange => "an enum value is at or above the number of members",
            CdrError::CharacterNotInCodeSet => "a character is not in the transmission code set",
            CdrError::NulInString => "a string to be sent contains NUL",
            CdrError::WideInGiop10Request => "GIOP 1.0, the version of a client's message, has no wide characters",
            CdrError::WideInGiop10Reply => "GIOP 1.0, the version of a server's message, has no wide characters",
            CdrError::NoWideCodeSet => "no transmission code set for wide characters is known",
            CdrError::NoWideCodeSetInReference => "the reference names no code set for wide characters",
            CdrError::BadWideStringLength => "the length of wide text is not possible in its code set",
            CdrError::NestingTooDeep => "values are nested deeper than the configured limit",
            CdrError::EmptyEncapsulation => "an encapsulation has no byte-order octet",
            CdrError::MalformedFixed => "a fixed-point value is malformed or has too many digits",
            CdrError::BadDiscriminator => "a discriminator has a value that its type does not have",
            CdrError::ReferenceWithoutAddress => {
                "the ORB of a reference to be sent listens at no address, so no other process could call the object: give it one (`OrbBuilder::listen`)"
            }
            CdrError::LocalObjectNotSendable => "a local object cannot be sent",
            CdrError::MissingScratch => "a borrowed value needs conversion and there is no arena",
            CdrError::UnsupportedForm => "the type, version or form of a value is not supported",
            CdrError::BadTypeCode => "a TypeCode is malformed",
            CdrError::BadIndirection => "the target of an indirection does not come earlier in the message",
            CdrError::IllegalTypeCodeMember => "a TypeCode has a member of a type that members cannot have",
            CdrError::IncompleteTypeCode => "a TypeCode contains a placeholder of a recursive type",
            CdrError::TypeMismatch => "a value does not have the type that it is said to have",
            CdrError::MalformedValuetype => "the octets are not a value, or its chunks are malformed",
            CdrError::UnexpectedValuetype => "a value has another type than the expected type",
            CdrError::NoValueFactory => {
                "no factory is registered for the type of a value, or for a type to which it can be truncated"
            }
            CdrError::CustomValueNotConvertible => "only the custom code of its type can convert a custom value",
            CdrError::MemoryBudgetExceeded => {
                "the messages that are being decoded have exhausted their common memory budget"
            }
            CdrError::ResultMemoryTooSmall => "a sequence has more elements than the caller's memory for it",
        }
    }
}

impl fmt::Display for CdrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for CdrError {}

#[cold]
#[inline(never)]
pub(crate) fn truncated() -> CdrError {
    CdrError::Truncated
}
