//! What can be wrong with CDR, and the system exception that says so.

use std::fmt;

use crate::exception::{SystemExceptionKind, minor};

/// Why a value could not be written or read. One octet, so that `Result<u32, CdrError>` stays in a register.
///
/// [`kind`](CdrError::kind) and [`minor`](CdrError::minor) are the one table from these to system exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum CdrError {
    /// The octets end before the value does.
    Truncated = 1,
    /// The last octet of a string is not NUL.
    StringNotTerminated,
    /// A bounded string or wstring is longer than its bound.
    StringOverBound,
    /// A bounded sequence has more elements than its bound.
    SequenceOverBound,
    /// A count announces more elements than the rest of the message can hold.
    CountOverRest,
    /// A length or count is above the [`Limits`](crate::Limits) of the receiver.
    OverLimit,
    /// A length does not fit in the 32 bits that CDR has for it.
    TooLong,
    /// An enum value at or above the number of members.
    EnumRange,
    /// A character that the transmission code set does not have (or octets that are no text in that code set).
    NotInCodeSet,
    /// NUL inside a string that is to be sent.
    NulInString,
    /// Wide data in a GIOP 1.0 message of a client, which has none (CORBA 3.0.3 section 15.3.1.6).
    WideFromClient,
    /// The same of a server.
    WideFromServer,
    /// Wide data where no transmission code set for it is known.
    NoWideSet,
    /// Wide data is to be sent to an object whose reference names no code sets.
    NoWideSetInReference,
    /// The length of a wchar or wstring is none of its code set.
    WideLength,
    /// Values are nested deeper than the [`Limits`](crate::Limits) of the receiver.
    TooDeep,
    /// An encapsulation without even its byte-order octet.
    EmptyEncapsulation,
    /// A fixed-point value with a half-octet that is no digit or no sign, or with more digits than its type.
    BadFixed,
    /// A discriminator, status or selector with a value that its type does not have.
    BadDiscriminator,
    /// A local object was to be sent.
    LocalObject,
    /// Borrowed text or elements need conversion, and the decoder was given no [`Scratch`](crate::Scratch).
    NoScratch,
    /// The first octets of the value have a type that is not supported here.
    Unsupported,
    /// A TypeCode of a kind that does not exist, or with parameters that its kind cannot have.
    BadType,
    /// An indirection to something that was not there before or is not whole, or that is something else.
    BadIndirection,
    /// A TypeCode with a member of a type that members cannot have.
    IllegitimateMember,
    /// A TypeCode of which a part was announced and never given.
    IncompleteType,
    /// A value that is not of the type it is said to have.
    NotOfType,
    /// Octets where a value (IDL `valuetype`) was expected that are none: a bad tag, or bad chunks.
    BadValue,
    /// A value of another type than the one expected.
    WrongValueType,
    /// A value of a type for which nothing is registered, and that cannot be truncated to one that is known.
    NoValueFactory,
    /// A custom value whose state is needed in another form, or as a tree, which takes its own code.
    CustomValue,
}

impl CdrError {
    /// The system exception that reports this.
    #[must_use]
    pub fn kind(self) -> SystemExceptionKind {
        self.exception().0
    }

    /// The minor code that reports this: the OMG's where it has one, else one of ours (docs/wire-extensions.md).
    #[must_use]
    pub fn minor(self) -> u32 {
        self.exception().1
    }

    fn exception(self) -> (SystemExceptionKind, u32) {
        use SystemExceptionKind::{BadParam, BadTypecode, DataConversion, Internal, InvObjref, Marshal, NoImplement};
        let own = minor::CORELANE | u32::from(self as u8);
        match self {
            CdrError::NotInCodeSet => (DataConversion, minor::data_conversion::CHARACTER_NOT_IN_CODE_SET),
            CdrError::NulInString => (BadParam, own),
            CdrError::WideFromClient => (Marshal, minor::marshal::WIDE_FROM_CLIENT_IN_GIOP_1_0),
            CdrError::WideFromServer => (Marshal, minor::marshal::WIDE_FROM_SERVER_IN_GIOP_1_0),
            CdrError::NoWideSet => (BadParam, minor::bad_param::NO_WIDE_CODE_SET),
            CdrError::NoWideSetInReference => (InvObjref, minor::inv_objref::CODE_SET_COMPONENT_REQUIRED),
            CdrError::LocalObject => (Marshal, minor::marshal::LOCAL_OBJECT),
            CdrError::NoValueFactory => (Marshal, minor::marshal::NO_VALUE_FACTORY),
            CdrError::NoScratch => (Internal, own),
            CdrError::IllegitimateMember => (BadTypecode, minor::bad_typecode::ILLEGITIMATE_MEMBER),
            CdrError::IncompleteType => (BadTypecode, minor::bad_typecode::INCOMPLETE),
            CdrError::NotOfType => (BadParam, own),
            CdrError::CustomValue => (NoImplement, own),
            _ => (Marshal, own),
        }
    }

    /// What is wrong, in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            CdrError::Truncated => "the octets end before the value does",
            CdrError::StringNotTerminated => "a string does not end with NUL",
            CdrError::StringOverBound => "a bounded string is longer than its bound",
            CdrError::SequenceOverBound => "a bounded sequence has more elements than its bound",
            CdrError::CountOverRest => "a count announces more elements than the message can hold",
            CdrError::OverLimit => "a length or count is above the configured limit",
            CdrError::TooLong => "a length does not fit in 32 bits",
            CdrError::EnumRange => "an enum value is at or above the number of members",
            CdrError::NotInCodeSet => "a character is not in the transmission code set",
            CdrError::NulInString => "a string to be sent contains NUL",
            CdrError::WideFromClient => "a client's GIOP 1.0 message has no wide characters",
            CdrError::WideFromServer => "a server's GIOP 1.0 message has no wide characters",
            CdrError::NoWideSet => "no transmission code set for wide characters is known",
            CdrError::NoWideSetInReference => "the reference names no code set for wide characters",
            CdrError::WideLength => "the length of wide text is not possible in its code set",
            CdrError::TooDeep => "values are nested deeper than the configured limit",
            CdrError::EmptyEncapsulation => "an encapsulation has no byte-order octet",
            CdrError::BadFixed => "a fixed-point value is malformed or has too many digits",
            CdrError::BadDiscriminator => "a discriminator has a value that its type does not have",
            CdrError::LocalObject => "a local object cannot be sent",
            CdrError::NoScratch => "a borrowed value needs conversion and there is no arena",
            CdrError::Unsupported => "a type that is not supported here",
            CdrError::BadType => "a TypeCode is malformed",
            CdrError::BadIndirection => "an indirection leads to nothing that was there before",
            CdrError::IllegitimateMember => "a TypeCode has a member of a type that members cannot have",
            CdrError::IncompleteType => "a recursive TypeCode is not complete",
            CdrError::NotOfType => "a value is not of its type",
            CdrError::BadValue => "octets that are no value, or are cut into bad chunks",
            CdrError::WrongValueType => "a value is of another type than the one expected",
            CdrError::NoValueFactory => {
                "no factory is registered for a value of this type, nor for one it can be truncated to"
            }
            CdrError::CustomValue => "only its own code can take a custom value apart, or give it another form",
        }
    }
}

impl fmt::Display for CdrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for CdrError {}

/// The error of every read past the end, out of line so that the reads themselves stay small.
#[cold]
#[inline(never)]
pub(crate) fn truncated() -> CdrError {
    CdrError::Truncated
}
