//! Request: a call.

use super::Version;
use super::contexts::{self, Contexts, ServiceContext};
use super::header::{Header, MessageKind, begin, begin_in, number};
use crate::cdr::{CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

/// What a client wants to hear back, from the response flags of GIOP 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseExpected {
    /// Nothing: a oneway with SYNC_NONE or SYNC_WITH_TRANSPORT. Flags 0; FALSE in 1.0 and 1.1.
    None,
    /// A reply before the servant runs: SYNC_WITH_SERVER. Flags 1.
    Server,
    /// A reply when the servant has run: a two-way call, or SYNC_WITH_TARGET. Flags 3; TRUE in 1.0 and 1.1.
    Target,
}

impl ResponseExpected {
    #[inline]
    const fn flags(self) -> u8 {
        match self {
            ResponseExpected::None => 0,
            ResponseExpected::Server => 1,
            ResponseExpected::Target => 3,
        }
    }

    #[inline]
    const fn from_flags(flags: u8) -> ResponseExpected {
        match flags {
            0 => ResponseExpected::None,
            1 => ResponseExpected::Server,
            _ => ResponseExpected::Target,
        }
    }

    /// Whether a reply is expected at all.
    #[inline]
    #[must_use]
    pub const fn any(self) -> bool {
        !matches!(self, ResponseExpected::None)
    }
}

/// How a target is addressed: the discriminator of TargetAddress, and the body of a NEEDS_ADDRESSING_MODE reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressingMode {
    /// By object key.
    Key = 0,
    /// By one profile.
    Profile = 1,
    /// By the whole reference.
    Reference = 2,
}

impl AddressingMode {
    /// The mode with a number.
    #[must_use]
    pub const fn from_number(number: i16) -> Option<AddressingMode> {
        match number {
            0 => Some(AddressingMode::Key),
            1 => Some(AddressingMode::Profile),
            2 => Some(AddressingMode::Reference),
            _ => None,
        }
    }
}

/// The object that a request is for (CORBA 3.0.3 section 15.4.2.1).
///
/// ```text
/// short mode | 0: sequence<octet> object key
///            | 1: unsigned long tag, sequence<octet> profile data
///            | 2: unsigned long index, IOR { string type id, sequence<profile> }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'m> {
    /// An object key, the only form of GIOP 1.0 and 1.1.
    Key(&'m [u8]),
    /// A profile.
    Profile {
        /// Its tag.
        tag: u32,
        /// Its body.
        data: &'m [u8],
    },
    /// A whole reference, of which one profile is selected.
    Reference {
        /// Which profile.
        selected: u32,
        /// Tag of the selected profile.
        tag: u32,
        /// Body of the selected profile.
        data: &'m [u8],
        /// The reference: from its type id to the end of its last profile, aligned to 4.
        ior: &'m [u8],
    },
}

impl<'m> Target<'m> {
    /// How the target is addressed.
    #[must_use]
    pub const fn mode(&self) -> AddressingMode {
        match self {
            Target::Key(_) => AddressingMode::Key,
            Target::Profile { .. } => AddressingMode::Profile,
            Target::Reference { .. } => AddressingMode::Reference,
        }
    }

    #[inline]
    pub(super) fn parse(d: &mut Decoder<'m>) -> Result<Target<'m>, CdrError> {
        let mode = d.read_i16()?;
        if mode == 0 {
            return Ok(Target::Key(d.read_octets()?));
        }
        Target::parse_rare(d, mode)
    }

    #[cold]
    fn parse_rare(d: &mut Decoder<'m>, mode: i16) -> Result<Target<'m>, CdrError> {
        match AddressingMode::from_number(mode) {
            Some(AddressingMode::Profile) => Ok(Target::Profile { tag: d.read_u32()?, data: d.read_octets()? }),
            Some(AddressingMode::Reference) => {
                let selected = d.read_u32()?;
                let start = d.position();
                d.read_str_octets()?;
                let profiles = d.read_len(8)?;
                if profiles > d.limits().profiles as usize {
                    return Err(CdrError::OverLimit);
                }
                let mut chosen = None;
                for index in 0..profiles {
                    let profile = (d.read_u32()?, d.read_octets()?);
                    if index == selected as usize {
                        chosen = Some(profile);
                    }
                }
                let (tag, data) = chosen.ok_or(CdrError::BadDiscriminator)?;
                let ior = d.bytes().get(start..d.position()).unwrap_or_default();
                Ok(Target::Reference { selected, tag, data, ior })
            }
            _ => Err(CdrError::BadDiscriminator),
        }
    }

    #[inline]
    pub(super) fn write(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_i16(i16::from(self.mode() as u8));
        match self {
            Target::Key(key) => e.write_octets_copied(key),
            Target::Profile { tag, data } => {
                e.write_u32(*tag);
                e.write_octets_copied(data)
            }
            Target::Reference { selected, ior, .. } => {
                e.write_u32(*selected);
                e.write_raw(ior);
                Ok(())
            }
        }
    }
}

/// A received Request (CORBA 3.0.3 section 15.4.2).
///
/// ```text
/// 1.0  header | contexts | unsigned long id | boolean response expected | sequence<octet> object key
///      | string operation | sequence<octet> principal | arguments
/// 1.1  the same with octet reserved[3] after the boolean
/// 1.2  header | unsigned long id | octet response flags | octet reserved[3] | target | string operation | contexts
///      | gap to a multiple of 8, unless there are no arguments | arguments
///
/// 1.2  12 id            16 flags, reserved   20 mode, gap   24 key length   28 key ...
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'m> {
    /// Of the message; the reply has the same.
    pub version: Version,
    /// Order of its numbers.
    pub endian: Endian,
    /// What the reply names.
    pub request_id: u32,
    /// Whether a reply is wanted.
    pub response: ResponseExpected,
    /// The object.
    pub target: Target<'m>,
    /// The operation's name, without its NUL.
    pub operation: &'m [u8],
    /// Service contexts.
    pub contexts: Contexts<'m>,
    /// Where the arguments begin, from octet 0 of the header; the end of the message if there are none.
    pub body_at: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> Request<'m> {
    /// Reads the header of a request: `message` is the whole message with the GIOP header that `header` was parsed from.
    ///
    /// # Errors
    /// [`CdrError`] where it is malformed or over a limit; MessageError is the answer.
    #[inline]
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Request<'m>, CdrError> {
        let mut request = Request::of(message, header);
        request.read(limits)?;
        Ok(request)
    }

    /// A request whose header is still to be [read](Self::read): until that has succeeded, the other fields mean nothing. That is two steps for
    /// who wants it where it stays.
    #[inline]
    #[must_use]
    pub fn of(message: &'m [u8], header: &Header) -> Request<'m> {
        Request {
            version: header.version,
            endian: header.endian,
            request_id: 0,
            response: ResponseExpected::None,
            target: Target::Key(&[]),
            operation: &[],
            contexts: Contexts::EMPTY,
            body_at: message.len(),
            message,
        }
    }

    /// Reads the header of the request: what [`parse`](Self::parse) does.
    ///
    /// # Errors
    /// Those of `parse`.
    #[inline]
    pub fn read(&mut self, limits: &'m Limits) -> Result<(), CdrError> {
        if self.version.is_1_2() && self.read_plain(limits).is_some() {
            return Ok(());
        }
        self.read_any(limits)
    }

    /// A request of GIOP 1.2 as nearly all are: addressed by object key, without service contexts. `None` for every other one,
    /// and for what is malformed or over a limit.
    #[inline]
    fn read_plain(&mut self, limits: &Limits) -> Option<()> {
        let endian = self.endian;
        let number = |word: u32| number(word, endian);
        let (_, rest) = self.message.split_first_chunk::<{ Header::LEN }>()?;
        let (fixed, rest) = rest.split_first_chunk::<16>()?;
        let [id, flags, mode, key_length]: [u32; 4] = bytemuck::cast(*fixed);
        let ([flags, ..], [0, 0, ..]) = (flags.to_ne_bytes(), mode.to_ne_bytes()) else { return None };
        let key_length = number(key_length);
        let (key, rest) = rest.split_at_checked(key_length as usize)?;
        // What stands before the key and before the operation's name are multiples of 4.
        let rest = rest.get(key.len().wrapping_neg() & 3..)?;
        let (name_length, rest) = rest.split_first_chunk()?;
        let name_length = number(u32::from_ne_bytes(*name_length));
        let (name, rest) = rest.split_at_checked(name_length as usize)?;
        let (0, operation) = name.split_last()? else { return None };
        let (&[0, 0, 0, 0], rest) = rest.get(name.len().wrapping_neg() & 3..)?.split_first_chunk()? else {
            return None;
        };
        if key_length > limits.sequence_length || name_length > limits.string_length {
            return None;
        }
        let length = self.message.len();
        self.request_id = number(id);
        self.response = ResponseExpected::from_flags(flags);
        self.target = Target::Key(key);
        self.operation = operation;
        self.body_at = (length - rest.len()).next_multiple_of(8).min(length);
        Some(())
    }

    #[inline(never)]
    fn read_any(&mut self, limits: &'m Limits) -> Result<(), CdrError> {
        let mut d = Decoder::new(self.message, self.endian).at(Header::LEN).with_limits(limits);
        if self.version.is_1_2() {
            self.request_id = d.read_u32()?;
            self.response = ResponseExpected::from_flags(d.read_u8()?);
            d.skip(3)?;
            self.target = Target::parse(&mut d)?;
            self.operation = d.read_str_octets()?;
            self.contexts = Contexts::parse(&mut d, limits.contexts)?;
        } else {
            self.contexts = Contexts::parse(&mut d, limits.contexts)?;
            self.request_id = d.read_u32()?;
            self.response = if d.read_bool()? { ResponseExpected::Target } else { ResponseExpected::None };
            if self.version.minor == 1 {
                d.skip(3)?;
            }
            self.target = Target::Key(d.read_octets()?);
            self.operation = d.read_str_octets()?;
            d.read_octets()?;
        }
        self.body_at = body_at(&d, self.version);
        Ok(())
    }

    /// A decoder at the first argument.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        Decoder::new(self.message, self.endian).at(self.body_at).with_version(self.version)
    }
}

/// Where the body begins when the decoder stands behind the contexts.
#[inline]
pub(super) fn body_at(d: &Decoder<'_>, version: Version) -> usize {
    if !version.is_1_2() {
        return d.position();
    }
    (d.position().next_multiple_of(8)).min(d.bytes().len())
}

/// What the header of a Request to be written says.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h> {
    /// GIOP 1.0, 1.1 or 1.2.
    pub version: Version,
    /// Not used by another request of this connection that still waits.
    pub request_id: u32,
    /// Whether a reply is wanted. [`ResponseExpected::Server`] is only in GIOP 1.2; before, it is as `Target`.
    pub response: ResponseExpected,
    /// The object. GIOP 1.0 and 1.1 have [`Target::Key`] only.
    pub target: Target<'h>,
    /// The operation's name, in ASCII, without NUL.
    pub operation: &'h [u8],
    /// Service contexts.
    pub contexts: &'h [ServiceContext<'h>],
}

/// Begins a request at the end of what the encoder holds: its header up to where the arguments go. Arguments follow
/// through the encoder, then [`finish`](super::finish).
///
/// # Errors
/// [`CdrError::TooLong`]; [`CdrError::Unsupported`] for a target other than a key before GIOP 1.2.
#[inline]
pub fn write_request_header(e: &mut Encoder<'_>, head: &RequestHead<'_>) -> Result<(), CdrError> {
    match head.target {
        Target::Key(key) if head.version.is_1_2() && head.contexts.is_empty() => write_plain(e, head, key),
        _ => write_any(e, head),
    }
}

/// A header of GIOP 1.2 as nearly all are, in few pieces.
#[inline]
fn write_plain(e: &mut Encoder<'_>, head: &RequestHead<'_>, key: &[u8]) -> Result<(), CdrError> {
    /// Octets up to the key.
    const FIXED: usize = Header::LEN + 16;
    let length = |octets: usize| u32::try_from(octets).map_err(|_| CdrError::TooLong);
    let endian = e.endian();
    let flags = u32::from_ne_bytes([head.response.flags(), 0, 0, 0]);
    let after = [number(head.request_id, endian), flags, 0, number(length(key.len())?, endian)];
    let name_length = number(length(head.operation.len() + 1)?, endian).to_ne_bytes();
    // Each with the gap behind it; the name with its NUL, and before the number of contexts, which is 0.
    let key_room = key.len().next_multiple_of(4);
    let name_room = (head.operation.len() + 1).next_multiple_of(4) + 4;
    let header = begin_in(e, head.version, MessageKind::Request);
    let room = e.room(FIXED + key_room + 4 + name_room);
    // The room is as large as what goes there.
    let Some((fixed, rest)) = room.split_first_chunk_mut::<FIXED>() else { return Err(CdrError::TooLong) };
    let Some((key_place, rest)) = rest.split_at_mut_checked(key_room) else { return Err(CdrError::TooLong) };
    let Some((length_place, name_place)) = rest.split_first_chunk_mut() else { return Err(CdrError::TooLong) };
    let (before, fixed) = fixed.split_at_mut(Header::LEN);
    before.copy_from_slice(&header);
    fixed.copy_from_slice(bytemuck::bytes_of(&after));
    fill(key_place, key);
    *length_place = name_length;
    fill(name_place, head.operation);
    e.begin_body(8);
    Ok(())
}

/// Puts octets at the front of a place that is large enough.
#[inline]
fn fill(place: &mut [u8], octets: &[u8]) {
    if let Some((front, _)) = place.split_at_mut_checked(octets.len()) {
        front.copy_from_slice(octets);
    }
}

fn write_any(e: &mut Encoder<'_>, head: &RequestHead<'_>) -> Result<(), CdrError> {
    begin(e, head.version, MessageKind::Request);
    if head.version.is_1_2() {
        e.write_u32(head.request_id);
        e.write_raw(&[head.response.flags(), 0, 0, 0]);
        head.target.write(e)?;
        write_operation(e, head.operation)?;
        contexts::write(e, head.contexts)?;
        e.begin_body(8);
        return Ok(());
    }
    let Target::Key(key) = head.target else { return Err(CdrError::Unsupported) };
    contexts::write(e, head.contexts)?;
    e.write_u32(head.request_id);
    e.write_bool(head.response.any());
    if head.version.minor == 1 {
        e.write_raw(&[0; 3]);
    }
    e.write_octets_copied(key)?;
    write_operation(e, head.operation)?;
    e.write_u32(0);
    e.begin_body(1);
    Ok(())
}

#[inline]
fn write_operation(e: &mut Encoder<'_>, operation: &[u8]) -> Result<(), CdrError> {
    e.write_len(operation.len() + 1)?;
    e.write_raw(operation);
    e.write_u8(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::giop::finish;

    fn message(head: &RequestHead<'_>, endian: Endian, arguments: &[u8], write: Write) -> Vec<u8> {
        let mut e = Encoder::new();
        e.set_endian(endian);
        write(&mut e, head).unwrap();
        e.write_raw(arguments);
        finish(&mut e).unwrap();
        e.to_vec()
    }

    type Write = fn(&mut Encoder<'_>, &RequestHead<'_>) -> Result<(), CdrError>;

    fn plain(e: &mut Encoder<'_>, head: &RequestHead<'_>) -> Result<(), CdrError> {
        let Target::Key(key) = head.target else { return Err(CdrError::Unsupported) };
        write_plain(e, head, key)
    }

    proptest! {
        #[test]
        fn the_plain_way_and_the_other_agree(
            request_id: u32,
            key in prop::collection::vec(any::<u8>(), 0..40),
            operation in "[a-z_]{0,20}",
            arguments in prop::collection::vec(any::<u8>(), 0..20),
            big: bool,
        ) {
            let endian = if big { Endian::Big } else { Endian::Little };
            let head = RequestHead {
                version: Version::GIOP_1_2,
                request_id,
                response: ResponseExpected::Target,
                target: Target::Key(&key),
                operation: operation.as_bytes(),
                contexts: &[],
            };
            let octets = message(&head, endian, &arguments, plain);
            prop_assert_eq!(&octets, &message(&head, endian, &arguments, write_any));
            let header = Header::parse(octets.first_chunk().unwrap()).unwrap();
            let limits = Limits::DEFAULT;
            let plain = |octets| {
                let mut request = Request::of(octets, &header);
                request.read_plain(&limits).map(|()| request)
            };
            let read = plain(&octets).unwrap();
            let careful = |octets| {
                let mut request = Request::of(octets, &header);
                request.read_any(&limits).map(|()| request)
            };
            let other = careful(&octets).unwrap();
            prop_assert_eq!(format!("{read:?}"), format!("{other:?}"));
            // What is cut off is never taken for plain where the careful way finds it broken.
            for end in Header::LEN..octets.len() {
                if careful(&octets[..end]).is_err() {
                    prop_assert!(plain(&octets[..end]).is_none());
                }
            }
        }
    }
}
