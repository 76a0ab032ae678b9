//! The Request message: a call.

use super::Version;
use super::contexts::{self, ReceivedServiceContexts, ServiceContext};
use super::header::{Header, MessageKind, begin, begin_header, number};
use crate::cdr::{CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

/// The kind of reply that a client expects, from the response flags of GIOP 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseExpected {
    /// No reply: a oneway with SYNC_NONE or SYNC_WITH_TRANSPORT. Flags 0; FALSE in 1.0 and 1.1.
    None,
    /// A reply before the servant runs: SYNC_WITH_SERVER. Flags 1.
    Server,
    /// A reply when the servant has run: a two-way call, or SYNC_WITH_TARGET. Flags 3, or any value
    /// above 1 if received; TRUE in 1.0 and 1.1.
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

    /// Returns true if the client expects a reply.
    #[inline]
    #[must_use]
    pub const fn is_expected(self) -> bool {
        !matches!(self, ResponseExpected::None)
    }
}

/// The form in which a request addresses its target.
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
    /// Returns the mode with this number.
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
pub enum TargetAddress<'m> {
    /// An object key, the only form of GIOP 1.0 and 1.1.
    Key(&'m [u8]),
    /// One profile of the object's reference.
    Profile {
        /// The profile's tag.
        tag: u32,
        /// The profile's body.
        data: &'m [u8],
    },
    /// The whole reference, with one profile selected.
    Reference {
        /// The index of the selected profile.
        selected: u32,
        /// The tag of the selected profile.
        tag: u32,
        /// The body of the selected profile.
        data: &'m [u8],
        /// The encoded reference, from its type id to the end of its last profile.
        ior: &'m [u8],
    },
}

impl<'m> TargetAddress<'m> {
    /// Returns the addressing mode of the target.
    #[must_use]
    pub const fn addressing_mode(&self) -> AddressingMode {
        match self {
            TargetAddress::Key(_) => AddressingMode::Key,
            TargetAddress::Profile { .. } => AddressingMode::Profile,
            TargetAddress::Reference { .. } => AddressingMode::Reference,
        }
    }

    #[inline]
    pub(super) fn parse(d: &mut Decoder<'m>) -> Result<TargetAddress<'m>, CdrError> {
        let mode = d.read_i16()?;
        if mode == 0 {
            return Ok(TargetAddress::Key(d.read_octet_sequence()?));
        }
        TargetAddress::parse_general(d, mode)
    }

    #[cold]
    fn parse_general(d: &mut Decoder<'m>, mode: i16) -> Result<TargetAddress<'m>, CdrError> {
        match AddressingMode::from_number(mode) {
            Some(AddressingMode::Profile) => {
                Ok(TargetAddress::Profile { tag: d.read_u32()?, data: d.read_octet_sequence()? })
            }
            Some(AddressingMode::Reference) => {
                let selected = d.read_u32()?;
                let start = d.position();
                d.read_str_octets()?;
                let profiles = d.read_len(8)?;
                if profiles > d.limits().max_profiles as usize {
                    return Err(CdrError::LimitExceeded);
                }
                let mut chosen = None;
                for index in 0..profiles {
                    let profile = (d.read_u32()?, d.read_octet_sequence()?);
                    if index == selected as usize {
                        chosen = Some(profile);
                    }
                }
                let (tag, data) = chosen.ok_or(CdrError::BadDiscriminator)?;
                let ior = d.bytes_from_origin().get(start..d.position()).unwrap_or_default();
                Ok(TargetAddress::Reference { selected, tag, data, ior })
            }
            _ => Err(CdrError::BadDiscriminator),
        }
    }

    #[inline]
    pub(super) fn write(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_i16(i16::from(self.addressing_mode() as u8));
        match self {
            TargetAddress::Key(key) => e.write_octet_sequence_copied(key),
            TargetAddress::Profile { tag, data } => {
                e.write_u32(*tag);
                e.write_octet_sequence_copied(data)
            }
            TargetAddress::Reference { selected, ior, .. } => {
                e.write_u32(*selected);
                e.write_bytes(ior);
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
/// 1.1  as 1.0, with octet reserved[3] after the boolean
/// 1.2  header | unsigned long id | octet response flags | octet reserved[3] | target | string operation | contexts
///      | gap to a multiple of 8, unless there are no arguments | arguments
///
/// 1.2  12 id            16 flags, reserved   20 mode, gap   24 key length   28 key ...
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'m> {
    /// The version of the message; the reply has the same version.
    pub version: Version,
    /// The byte order of the message.
    pub endian: Endian,
    /// The request id, which the reply repeats.
    pub request_id: u32,
    /// The kind of reply that the client wants.
    pub response_expected: ResponseExpected,
    /// The object that is called.
    pub target: TargetAddress<'m>,
    /// The name of the operation, without its NUL.
    pub operation: &'m [u8],
    /// The service contexts.
    pub contexts: ReceivedServiceContexts<'m>,
    /// Offset of the arguments in bytes, from the start of the header; the length of the message if
    /// it has no arguments.
    pub body_offset: usize,
    /// The whole message.
    pub message: &'m [u8],
}

impl<'m> Request<'m> {
    /// Parses the header of a request. `message` is the whole message; `header` was parsed from its
    /// first 12 bytes.
    ///
    /// # Errors
    /// [`CdrError`] if it is malformed or exceeds a limit.
    #[inline]
    pub fn parse(message: &'m [u8], header: &Header, limits: &'m Limits) -> Result<Request<'m>, CdrError> {
        let mut request = Request::with_unparsed_header(message, header);
        request.parse_header(limits)?;
        Ok(request)
    }

    /// Creates a request whose header the caller [parses](Self::parse_header) next. Until the
    /// parsing succeeds, the fields that the header sets are meaningless.
    #[inline]
    #[must_use]
    pub fn with_unparsed_header(message: &'m [u8], header: &Header) -> Request<'m> {
        Request {
            version: header.version,
            endian: header.endian,
            request_id: 0,
            response_expected: ResponseExpected::None,
            target: TargetAddress::Key(&[]),
            operation: &[],
            contexts: ReceivedServiceContexts::EMPTY,
            body_offset: message.len(),
            message,
        }
    }

    /// Parses the header of the request in place, as [`parse`](Self::parse) does.
    ///
    /// # Errors
    /// [`CdrError`] if the header is malformed or exceeds a limit.
    #[inline]
    pub fn parse_header(&mut self, limits: &'m Limits) -> Result<(), CdrError> {
        if self.version.has_giop_1_2_headers() && self.parse_header_fast(limits).is_some() {
            return Ok(());
        }
        self.parse_header_general(limits)
    }

    /// Parses a GIOP 1.2 request that is addressed by object key and has no service contexts.
    /// Returns `None` for other requests, and if the request is malformed or its key or operation
    /// exceeds a limit.
    #[inline]
    fn parse_header_fast(&mut self, limits: &Limits) -> Option<()> {
        let endian = self.endian;
        let number = |word: u32| number(word, endian);
        let (_, rest) = self.message.split_first_chunk::<{ Header::LEN }>()?;
        let (fixed, rest) = rest.split_first_chunk::<16>()?;
        let [id, flags, mode, key_length]: [u32; 4] = bytemuck::cast(*fixed);
        let ([flags, ..], [0, 0, ..]) = (flags.to_ne_bytes(), mode.to_ne_bytes()) else { return None };
        let key_length = number(key_length);
        let (key, rest) = rest.split_at_checked(key_length as usize)?;
        // The key and the operation's name both begin at multiples of 4.
        let rest = rest.get(key.len().wrapping_neg() & 3..)?;
        let (name_length, rest) = rest.split_first_chunk()?;
        let name_length = number(u32::from_ne_bytes(*name_length));
        let (name, rest) = rest.split_at_checked(name_length as usize)?;
        let (0, operation) = name.split_last()? else { return None };
        let (&[0, 0, 0, 0], rest) = rest.get(name.len().wrapping_neg() & 3..)?.split_first_chunk()? else {
            return None;
        };
        if key_length > limits.max_sequence_length || name_length > limits.max_string_length {
            return None;
        }
        let length = self.message.len();
        self.request_id = number(id);
        self.response_expected = ResponseExpected::from_flags(flags);
        self.target = TargetAddress::Key(key);
        self.operation = operation;
        self.body_offset = (length - rest.len()).next_multiple_of(8).min(length);
        Some(())
    }

    #[inline(never)]
    fn parse_header_general(&mut self, limits: &'m Limits) -> Result<(), CdrError> {
        let mut d = Decoder::new(self.message, self.endian).at_position(Header::LEN).with_limits(limits);
        if self.version.has_giop_1_2_headers() {
            self.request_id = d.read_u32()?;
            self.response_expected = ResponseExpected::from_flags(d.read_u8()?);
            d.skip(3)?;
            self.target = TargetAddress::parse(&mut d)?;
            self.operation = d.read_str_octets()?;
            self.contexts = ReceivedServiceContexts::parse(&mut d, limits.max_service_contexts)?;
        } else {
            self.contexts = ReceivedServiceContexts::parse(&mut d, limits.max_service_contexts)?;
            self.request_id = d.read_u32()?;
            self.response_expected = if d.read_bool()? { ResponseExpected::Target } else { ResponseExpected::None };
            // In GIOP 1.0 the padding in front of the key takes the position of the reserved octets
            // of GIOP 1.1.
            self.target = TargetAddress::Key(d.read_octet_sequence()?);
            self.operation = d.read_str_octets()?;
            d.read_octet_sequence()?;
        }
        self.body_offset = body_offset(&d, self.version);
        Ok(())
    }

    /// Returns a decoder at the first argument.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Decoder<'m> {
        Decoder::new(self.message, self.endian).at_position(self.body_offset).with_version(self.version)
    }
}

#[inline]
pub(super) fn body_offset(d: &Decoder<'_>, version: Version) -> usize {
    if !version.has_giop_1_2_headers() {
        return d.position();
    }
    (d.position().next_multiple_of(8)).min(d.bytes_from_origin().len())
}

/// The header fields of a Request to be written.
#[derive(Clone, Copy, Debug)]
pub struct RequestHeader<'h> {
    /// GIOP 1.0, 1.1 or 1.2.
    pub version: Version,
    /// The request id, unique among the requests of this connection that await a reply.
    pub request_id: u32,
    /// The kind of reply that the client wants. Before GIOP 1.2, [`ResponseExpected::Server`] is
    /// written as `Target`.
    pub response_expected: ResponseExpected,
    /// The object that is called. GIOP 1.0 and 1.1 have [`TargetAddress::Key`] only.
    pub target: TargetAddress<'h>,
    /// The name of the operation, in ASCII, without NUL.
    pub operation: &'h [u8],
    /// The service contexts.
    pub contexts: &'h [ServiceContext<'h>],
}

/// Writes the header of a request at the end of the encoder's contents. The caller writes the
/// arguments through the encoder and then calls [`finish_message`](super::finish_message).
///
/// # Errors
/// [`CdrError::LengthOverflow`] if the length of a field does not fit in 32 bits; before GIOP 1.2,
/// [`CdrError::UnsupportedForm`] for a target that is not a key.
#[inline]
pub fn write_request_header(e: &mut Encoder<'_>, head: &RequestHeader<'_>) -> Result<(), CdrError> {
    match head.target {
        TargetAddress::Key(key) if head.version.has_giop_1_2_headers() && head.contexts.is_empty() => {
            write_header_fast(e, head, key)
        }
        _ => write_header_general(e, head),
    }
}

#[inline]
fn write_header_fast(e: &mut Encoder<'_>, head: &RequestHeader<'_>, key: &[u8]) -> Result<(), CdrError> {
    const FIXED: usize = Header::LEN + 16;
    let length = |octets: usize| u32::try_from(octets).map_err(|_| CdrError::LengthOverflow);
    let endian = e.endian();
    let flags = u32::from_ne_bytes([head.response_expected.flags(), 0, 0, 0]);
    let after = [number(head.request_id, endian), flags, 0, number(length(key.len())?, endian)];
    let name_length = number(length(head.operation.len() + 1)?, endian).to_ne_bytes();
    // `name_room` includes the name's NUL, and the number of service contexts (0), which follows
    // the name.
    let key_room = key.len().next_multiple_of(4);
    let name_room = (head.operation.len() + 1).next_multiple_of(4) + 4;
    let header = begin_header(e, head.version, MessageKind::Request);
    let room = e.extend_zeroed(FIXED + key_room + 4 + name_room);
    // The appended bytes have exactly the size of these parts, so the splits succeed.
    let Some((fixed, rest)) = room.split_first_chunk_mut::<FIXED>() else { return Err(CdrError::LengthOverflow) };
    let Some((key_place, rest)) = rest.split_at_mut_checked(key_room) else { return Err(CdrError::LengthOverflow) };
    let Some((length_place, name_place)) = rest.split_first_chunk_mut() else { return Err(CdrError::LengthOverflow) };
    let (before, fixed) = fixed.split_at_mut(Header::LEN);
    before.copy_from_slice(&header);
    fixed.copy_from_slice(bytemuck::bytes_of(&after));
    fill(key_place, key);
    *length_place = name_length;
    fill(name_place, head.operation);
    e.begin_body(8);
    Ok(())
}

#[inline]
fn fill(place: &mut [u8], octets: &[u8]) {
    if let Some((front, _)) = place.split_at_mut_checked(octets.len()) {
        front.copy_from_slice(octets);
    }
}

fn write_header_general(e: &mut Encoder<'_>, head: &RequestHeader<'_>) -> Result<(), CdrError> {
    begin(e, head.version, MessageKind::Request);
    if head.version.has_giop_1_2_headers() {
        e.write_u32(head.request_id);
        e.write_bytes(&[head.response_expected.flags(), 0, 0, 0]);
        head.target.write(e)?;
        write_operation(e, head.operation)?;
        contexts::write(e, head.contexts)?;
        e.begin_body(8);
        return Ok(());
    }
    let TargetAddress::Key(key) = head.target else { return Err(CdrError::UnsupportedForm) };
    contexts::write(e, head.contexts)?;
    e.write_u32(head.request_id);
    e.write_bool(head.response_expected.is_expected());
    // The padding in front of the key also serves as the reserved octets of GIOP 1.1.
    e.write_octet_sequence_copied(key)?;
    write_operation(e, head.operation)?;
    e.write_u32(0);
    e.begin_body(1);
    Ok(())
}

#[inline]
fn write_operation(e: &mut Encoder<'_>, operation: &[u8]) -> Result<(), CdrError> {
    e.write_len(operation.len() + 1)?;
    e.write_bytes(operation);
    e.write_u8(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::giop::finish_message;

    fn message(head: &RequestHeader<'_>, endian: Endian, arguments: &[u8], write: Write) -> Vec<u8> {
        let mut e = Encoder::new();
        e.set_endian(endian);
        write(&mut e, head).unwrap();
        e.write_bytes(arguments);
        finish_message(&mut e).unwrap();
        e.to_vec()
    }

    type Write = fn(&mut Encoder<'_>, &RequestHeader<'_>) -> Result<(), CdrError>;

    fn plain(e: &mut Encoder<'_>, head: &RequestHeader<'_>) -> Result<(), CdrError> {
        let TargetAddress::Key(key) = head.target else { return Err(CdrError::UnsupportedForm) };
        write_header_fast(e, head, key)
    }

    proptest! {
        #[test]
        fn fast_and_general_writer_agree(
            request_id: u32,
            key in prop::collection::vec(any::<u8>(), 0..40),
            operation in "[a-z_]{0,20}",
            arguments in prop::collection::vec(any::<u8>(), 0..20),
            big: bool,
        ) {
            let endian = if big { Endian::Big } else { Endian::Little };
            let head = RequestHeader {
                version: Version::GIOP_1_2,
                request_id,
                response_expected: ResponseExpected::Target,
                target: TargetAddress::Key(&key),
                operation: operation.as_bytes(),
                contexts: &[],
            };
            let octets = message(&head, endian, &arguments, plain);
            prop_assert_eq!(&octets, &message(&head, endian, &arguments, write_header_general));
            let header = Header::parse(octets.first_chunk().unwrap()).unwrap();
            let limits = Limits::DEFAULT;
            let plain = |octets| {
                let mut request = Request::with_unparsed_header(octets, &header);
                request.parse_header_fast(&limits).map(|()| request)
            };
            let read = plain(&octets).unwrap();
            let careful = |octets| {
                let mut request = Request::with_unparsed_header(octets, &header);
                request.parse_header_general(&limits).map(|()| request)
            };
            let other = careful(&octets).unwrap();
            prop_assert_eq!(format!("{read:?}"), format!("{other:?}"));
            for end in Header::LEN..octets.len() {
                if careful(&octets[..end]).is_err() {
                    prop_assert!(plain(&octets[..end]).is_none());
                }
            }
        }
    }

    fn read_both<'m>(octets: &'m [u8], limits: &'m Limits) -> (Option<Request<'m>>, Result<Request<'m>, CdrError>) {
        let header = Header::parse(octets.first_chunk().unwrap()).unwrap();
        let (mut plain, mut careful) =
            (Request::with_unparsed_header(octets, &header), Request::with_unparsed_header(octets, &header));
        (plain.parse_header_fast(limits).map(|()| plain), careful.parse_header_general(limits).map(|()| careful))
    }

    fn head<'h>(key: &'h [u8], operation: &'h [u8]) -> RequestHeader<'h> {
        let (version, response) = (Version::GIOP_1_2, ResponseExpected::Target);
        RequestHeader {
            version,
            request_id: 7,
            response_expected: response,
            target: TargetAddress::Key(key),
            operation,
            contexts: &[],
        }
    }

    #[test]
    fn both_parsers_keep_the_limits_of_key_and_name() {
        let octets = message(&head(b"12345", b"abc"), Endian::Big, &[], write_header_general);
        for (sequence_length, string_length) in [(5, 4), (4, 4), (5, 3), (4, 3), (6, 5)] {
            let limits =
                Limits { max_sequence_length: sequence_length, max_string_length: string_length, ..Limits::DEFAULT };
            let fits = sequence_length >= 5 && string_length >= 4;
            let (plain, careful) = read_both(&octets, &limits);
            assert_eq!(plain.is_some(), fits, "{sequence_length} {string_length}");
            assert_eq!(careful.map(drop), if fits { Ok(()) } else { Err(CdrError::LimitExceeded) });
            let header = Header::parse(octets.first_chunk().unwrap()).unwrap();
            assert_eq!(Request::parse(&octets, &header, &limits).is_ok(), fits);
        }
    }

    #[test]
    fn fast_and_general_parser_agree_on_changed_requests() {
        let octets = message(&head(b"12345", b"abc"), Endian::Little, &[1, 2, 3], write_header_general);
        let limits = Limits::DEFAULT;
        let mut taken = 0;
        for at in Header::LEN..octets.len() {
            for octet in 0..=255 {
                let mut octets = octets.clone();
                octets[at] = octet;
                let (Some(plain), careful) = read_both(&octets, &limits) else { continue };
                assert_eq!(format!("{plain:?}"), format!("{:?}", careful.unwrap()), "octet {at} is {octet}");
                taken += 1;
            }
        }
        assert!(taken > 1000, "the fast parser accepted {taken} requests only");
    }

    #[test]
    fn response_flags_have_three_meanings() {
        use ResponseExpected::{None, Server, Target};
        for (response, flags, any) in [(None, 0, false), (Server, 1, true), (Target, 3, true)] {
            assert_eq!((response.flags(), response.is_expected()), (flags, any));
            let octets = message(
                &RequestHeader { response_expected: response, ..head(b"k", b"f") },
                Endian::Big,
                &[],
                write_header_general,
            );
            assert_eq!(octets[16], flags);
            let (plain, careful) = read_both(&octets, &Limits::DEFAULT);
            assert_eq!((plain.unwrap().response_expected, careful.unwrap().response_expected), (response, response));
            let old = RequestHeader { version: Version::GIOP_1_1, response_expected: response, ..head(b"k", b"f") };
            let octets = message(&old, Endian::Big, &[], write_header_general);
            let (_, careful) = read_both(&octets, &Limits::DEFAULT);
            assert_eq!(careful.unwrap().response_expected.is_expected(), any);
        }
        for flags in [2, 4, 255] {
            assert_eq!(ResponseExpected::from_flags(flags), Target);
        }
    }

    #[test]
    fn addressing_modes_have_the_numbers_of_the_specification() {
        for mode in [AddressingMode::Key, AddressingMode::Profile, AddressingMode::Reference] {
            assert_eq!(AddressingMode::from_number(i16::from(mode as u8)), Some(mode));
        }
        let numbers = [AddressingMode::Key as u8, AddressingMode::Profile as u8, AddressingMode::Reference as u8];
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!((AddressingMode::from_number(3), AddressingMode::from_number(-1)), (None, None));
    }

    #[test]
    fn profiles_of_a_target_are_bounded() {
        let mut reference = Encoder::new();
        reference.set_endian(Endian::Big);
        reference.write_latin1_str("").unwrap();
        reference.write_u32(3);
        for tag in 0..3 {
            reference.write_u32(tag);
            reference.write_octet_sequence(b"body").unwrap();
        }
        let ior = reference.into_reusable_buffer();
        let target = TargetAddress::Reference { selected: 1, tag: 1, data: b"body", ior: &ior };
        let octets = message(&RequestHeader { target, ..head(b"", b"f") }, Endian::Big, &[], write_header_general);
        for (profiles, result) in [(4, Ok(target)), (3, Ok(target)), (2, Err(CdrError::LimitExceeded))] {
            let limits = Limits { max_profiles: profiles, ..Limits::DEFAULT };
            let (plain, careful) = read_both(&octets, &limits);
            assert!(plain.is_none());
            assert_eq!(careful.map(|request| request.target), result);
        }
    }
}
