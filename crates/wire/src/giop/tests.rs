use proptest::prelude::*;

use super::*;
use crate::cdr::{Cdr, CdrError, Encoder, Endian};
use crate::ior::{Ior, TaggedProfile};
use crate::limits::Limits;

const VERSIONS: [Version; 3] = [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2];

fn encoder(endian: Endian) -> Encoder<'static> {
    let mut e = Encoder::new();
    e.set_endian(endian);
    e
}

fn header(message: &[u8]) -> Header {
    let header = Header::parse(message.first_chunk().unwrap()).unwrap();
    assert_eq!(header.total_len(), message.len());
    header
}

fn head(version: Version) -> RequestHeader<'static> {
    RequestHeader {
        version,
        request_id: 2,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(b"K"),
        operation: b"f",
        contexts: &[],
    }
}

#[test]
fn a_request_of_giop_1_2_octet_by_octet() {
    let mut e = encoder(Endian::Little);
    write_request_header(&mut e, &head(Version::GIOP_1_2)).unwrap();
    finish_message(&mut e).unwrap();
    assert_eq!(
        e.to_vec(),
        b"GIOP\x01\x02\x01\x00\x20\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0K\0\0\0\x02\0\0\0f\0\0\0\0\0\0\0"
    );
    let mut e = encoder(Endian::Little);
    write_request_header(&mut e, &head(Version::GIOP_1_2)).unwrap();
    e.write_i32(7);
    finish_message(&mut e).unwrap();
    let message = e.to_vec();
    assert_eq!((message[8], message.len()), (40, 52));
    assert_eq!(message[40..], [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    let request = Request::parse(&message, &header(&message), &Limits::DEFAULT).unwrap();
    assert_eq!((request.body_offset, request.body().read_i32()), (48, Ok(7)));
}

#[test]
fn void_reply_of_giop_1_2_octet_by_octet() {
    let mut e = encoder(Endian::Little);
    begin_reply(&mut e, Version::GIOP_1_2, 2, ReplyStatus::NoException, &[]).unwrap();
    finish_message(&mut e).unwrap();
    assert_eq!(e.to_vec(), b"GIOP\x01\x02\x01\x01\x0c\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn requests_round_trip_in_every_version_and_byte_order() {
    let contexts = [ServiceContext { id: 10, data: &[0, 0, 0, 100] }, ServiceContext { id: 1, data: &[1, 2, 3] }];
    for version in VERSIONS {
        for endian in [Endian::Big, Endian::Little] {
            for response in [ResponseExpected::None, ResponseExpected::Target] {
                let mut e = encoder(endian);
                let head = RequestHeader { contexts: &contexts, response_expected: response, ..head(version) };
                write_request_header(&mut e, &head).unwrap();
                e.write_u64(9);
                finish_message(&mut e).unwrap();
                let message = e.to_vec();
                let parsed = Request::parse(&message, &header(&message), &Limits::DEFAULT).unwrap();
                assert_eq!((parsed.version, parsed.endian, parsed.request_id), (version, endian, 2));
                assert_eq!((parsed.response_expected, parsed.target), (response, TargetAddress::Key(b"K")));
                assert_eq!(parsed.operation, b"f");
                assert_eq!(parsed.contexts.iter().collect::<Vec<_>>(), [(10, &[0, 0, 0, 100][..]), (1, &[1, 2, 3])]);
                assert_eq!((parsed.contexts.find(1), parsed.contexts.find(2)), (Some(&[1, 2, 3][..]), None));
                assert_eq!(parsed.body().read_u64(), Ok(9));
                for len in Header::LEN..parsed.body_offset - 8 {
                    assert!(Request::parse(&message[..len], &header(&message), &Limits::DEFAULT).is_err(), "{len}");
                }
            }
        }
    }
}

#[test]
fn replies_round_trip_in_every_version_and_byte_order() {
    let contexts = [ServiceContext { id: 10, data: &[0, 0, 0, 100, 1] }];
    for version in VERSIONS {
        for endian in [Endian::Big, Endian::Little] {
            let mut e = encoder(endian);
            begin_reply(&mut e, version, 7, ReplyStatus::UserException, &contexts).unwrap();
            e.write_u8(9);
            finish_message(&mut e).unwrap();
            let message = e.to_vec();
            let reply = Reply::parse(&message, &header(&message), &Limits::DEFAULT).unwrap();
            assert_eq!((reply.request_id, reply.status), (7, ReplyStatus::UserException));
            assert_eq!(
                (reply.contexts.len(), reply.body().read_u8(), reply.body().is_written_by_server()),
                (1, Ok(9), true)
            );
            assert!(!version.has_giop_1_2_headers() || reply.body_offset.is_multiple_of(8));
        }
    }
}

#[test]
fn targets_by_profile_and_by_reference_round_trip() {
    let mut reference = encoder(Endian::Big);
    reference.write_latin1_str("IDL:X:1.0").unwrap();
    reference.write_u32(2);
    for tag in [0, 9] {
        reference.write_u32(tag);
        reference.write_octet_sequence(b"body").unwrap();
    }
    let ior = reference.into_reusable_buffer();
    let profile = TargetAddress::Profile { tag: 3, data: b"abc" };
    let whole = TargetAddress::Reference { selected: 1, tag: 9, data: b"body", ior: &ior };
    for target in [profile, whole] {
        let mut e = encoder(Endian::Big);
        let head = RequestHeader { target, ..head(Version::GIOP_1_2) };
        write_request_header(&mut e, &head).unwrap();
        finish_message(&mut e).unwrap();
        let message = e.to_vec();
        let parsed = Request::parse(&message, &header(&message), &Limits::DEFAULT).unwrap();
        assert_eq!((parsed.target, parsed.operation), (target, &b"f"[..]));
        let mut old = RequestHeader { target, ..head };
        old.version = Version::GIOP_1_1;
        assert_eq!(write_request_header(&mut e, &old), Err(CdrError::UnsupportedForm));
    }
    let mut e = encoder(Endian::Big);
    let target = TargetAddress::Reference { selected: 2, tag: 0, data: b"", ior: &ior };
    write_locate_request(&mut e, Version::GIOP_1_2, 1, &target).unwrap();
    let message = e.to_vec();
    let refused = LocateRequest::parse(&message, &header(&message), &Limits::DEFAULT);
    assert_eq!(refused.unwrap_err(), CdrError::BadDiscriminator);
}

#[test]
fn locate_messages_round_trip() {
    for version in VERSIONS {
        let mut e = encoder(Endian::Big);
        write_locate_request(&mut e, version, 4, &TargetAddress::Key(b"key")).unwrap();
        let message = e.to_vec();
        let parsed = LocateRequest::parse(&message, &header(&message), &Limits::DEFAULT).unwrap();
        assert_eq!((parsed.request_id, parsed.target), (4, TargetAddress::Key(b"key")));
        let mut e = encoder(Endian::Big);
        begin_locate_reply(&mut e, version, 4, LocateStatus::NeedsAddressingMode);
        e.write_i16(1);
        finish_message(&mut e).unwrap();
        let message = e.to_vec();
        let parsed = LocateReply::parse(&message, &header(&message)).unwrap();
        assert_eq!((parsed.status, parsed.body_offset), (LocateStatus::NeedsAddressingMode, 20));
        assert_eq!((parsed.body().read_i16(), parsed.body().is_written_by_server()), (Ok(1), true));
    }
}

#[test]
fn a_forward_in_a_locate_reply_follows_the_status_at_once() {
    let ior = Ior { type_id: "IDL:X:1.0".into(), profiles: vec![TaggedProfile { tag: 9, data: vec![1, 2, 3] }] };
    for version in VERSIONS {
        for endian in [Endian::Big, Endian::Little] {
            for status in [LocateStatus::ObjectForward, LocateStatus::ObjectForwardPerm] {
                let mut e = encoder(endian);
                begin_locate_reply(&mut e, version, 4, status);
                ior.encode(&mut e).unwrap();
                finish_message(&mut e).unwrap();
                let message = e.to_vec();
                let parsed = LocateReply::parse(&message, &header(&message)).unwrap();
                assert_eq!((parsed.version, parsed.endian, parsed.status), (version, endian, status));
                assert_eq!((parsed.request_id, parsed.body_offset), (4, 20));
                let mut body = parsed.body();
                assert_eq!((Ior::decode(&mut body).as_ref(), body.remaining_len()), (Ok(&ior), 0));
            }
        }
    }
}

#[test]
fn statuses_and_kinds_have_the_numbers_of_the_specification() {
    use LocateStatus as L;
    use ReplyStatus as R;
    let located = [
        L::UnknownObject,
        L::ObjectHere,
        L::ObjectForward,
        L::ObjectForwardPerm,
        L::SystemException,
        L::NeedsAddressingMode,
    ];
    let replied = [
        R::NoException,
        R::UserException,
        R::SystemException,
        R::LocationForward,
        R::LocationForwardPerm,
        R::NeedsAddressingMode,
    ];
    for (number, (located, replied)) in (0_u32..).zip(located.into_iter().zip(replied)) {
        assert_eq!((LocateStatus::from_number(number), located as u32), (Some(located), number));
        assert_eq!((ReplyStatus::from_number(number), replied as u32), (Some(replied), number));
    }
    assert_eq!((LocateStatus::from_number(6), ReplyStatus::from_number(6)), (None, None));
    for number in 0..=7 {
        assert_eq!(MessageKind::from_number(number).map(|kind| kind as u8), Some(number));
    }
    assert_eq!(MessageKind::from_number(8), None);
}

#[test]
fn messages_without_a_body_are_one_header() {
    let mut e = encoder(Endian::Big);
    write_cancel_request(&mut e, Version::GIOP_1_1, 5);
    let message = e.to_vec();
    assert_eq!(CancelRequest::parse(&message, &header(&message)), Ok(CancelRequest { request_id: 5 }));
    let mut e = encoder(Endian::Big);
    write_close_connection(&mut e, Version::GIOP_1_2);
    write_message_error(&mut e, Version::GIOP_1_0);
    assert_eq!(e.to_vec(), b"GIOP\x01\x02\x00\x05\0\0\0\0GIOP\x01\x00\x00\x06\0\0\0\0");
}

#[test]
fn a_second_message_in_the_same_encoder_is_aligned_from_its_own_header() {
    let mut e = encoder(Endian::Big);
    write_cancel_request(&mut e, Version::GIOP_1_1, 5);
    e.write_u8(0xff);
    write_request_header(&mut e, &head(Version::GIOP_1_2)).unwrap();
    e.write_u64(1);
    finish_message(&mut e).unwrap();
    let all = e.to_vec();
    let message = &all[17..];
    let parsed = Request::parse(message, &header(message), &Limits::DEFAULT).unwrap();
    assert_eq!(parsed.body().read_u64(), Ok(1));
}

#[test]
fn malformed_headers_are_refused() {
    let refused = |octets: &[u8; 12]| Header::parse(octets).unwrap_err();
    assert_eq!(refused(b"ZIOP\x01\x02\0\0\0\0\0\0"), HeaderError::CompressedMessage);
    assert_eq!(refused(b"GIOX\x01\x02\0\0\0\0\0\0"), HeaderError::BadMagic { got: *b"GIOX" });
    assert_eq!(
        refused(b"GIOP\x02\x00\0\0\0\0\0\0"),
        HeaderError::UnsupportedVersion { got: Version { major: 2, minor: 0 } }
    );
    assert_eq!(refused(b"GIOP\x01\x02\0\x08\0\0\0\0"), HeaderError::UnknownMessageKind { got: 8 });
    assert_eq!(refused(b"GIOP\x01\x00\0\x07\0\0\0\0"), HeaderError::UnknownMessageKind { got: 7 });
    let header = Header::parse(b"GIOP\x01\x00\x03\0\0\0\0\x01").unwrap();
    assert_eq!((header.more_fragments, header.size), (false, 1 << 24));
}

#[test]
fn text_of_a_header_error_contains_the_received_value() {
    let said = [
        HeaderError::BadMagic { got: *b"GE\nT" },
        HeaderError::CompressedMessage,
        HeaderError::UnsupportedVersion { got: Version { major: 2, minor: 7 } },
        HeaderError::UnknownMessageKind { got: 99 },
    ]
    .map(|error| error.to_string());
    for (text, part) in said.iter().zip(["GE\\nT", "ZIOP", "got 2.7", "got 99"]) {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn supported_versions_are_1_0_to_1_2() {
    for (major, minor, is_supported) in
        [(1, 0, true), (1, 1, true), (1, 2, true), (1, 3, false), (0, 2, false), (2, 0, false)]
    {
        assert_eq!(Version { major, minor }.is_supported(), is_supported, "{major}.{minor}");
    }
    assert_eq!(Version::GIOP_1_1.to_string(), "1.1");
}

#[test]
fn headers_are_written_and_parsed_octet_by_octet() {
    for (minor, flags, octets) in
        [(0, 0, [0, 0, 1, 2]), (1, 2, [0, 0, 1, 2]), (2, 3, [2, 1, 0, 0]), (2, 1, [2, 1, 0, 0])]
    {
        let [a, b, c, d] = octets;
        let octets = [b'G', b'I', b'O', b'P', 1, minor, flags, 4, a, b, c, d];
        let header = Header::parse(&octets).unwrap();
        assert_eq!((header.size, header.total_len(), header.kind), (258, 270, MessageKind::LocateReply));
        assert_eq!((header.more_fragments, header.endian == Endian::Little), (flags & 2 != 0, flags & 1 != 0));
        assert_eq!(header.to_bytes(), octets);
    }
}

#[test]
fn parse_whole_checks_each_part_of_the_header() {
    let good = *b"GIOP\x01\x02\x00\x01\x00\x00\x00\x04abcdrest";
    let glance = |octets: &[u8], most| Header::parse_unfragmented_1_2(octets, MessageKind::Reply, most);
    let header = Header::parse(good.first_chunk().unwrap()).unwrap();
    assert_eq!(glance(&good, 4), Some(header));
    assert_eq!(glance(&good, 3), None);
    assert_eq!(glance(&good[..16], 4), Some(header));
    for len in 0..16 {
        assert_eq!(glance(&good[..len], 4), None, "{len} octets");
    }
    assert_eq!(Header::parse_unfragmented_1_2(&good, MessageKind::Request, 4), None);
    for at in 0..8 {
        for octet in (0..=255).filter(|octet| *octet != good[at]) {
            let mut other = good;
            other[at] = octet;
            // If the octet is the byte-order flag, the size is read in the other byte order, and is
            // larger than the message.
            assert_eq!(glance(&other, u32::MAX), None, "octet {at} is {octet}");
        }
    }
    let mut little = good;
    (little[6], little[8], little[11]) = (1, 4, 0);
    assert_eq!(glance(&little, 4), Some(Header { endian: Endian::Little, ..header }));
}

#[test]
fn service_contexts_are_counted_and_bounded() {
    let mut e = encoder(Endian::Big);
    let contexts = vec![ServiceContext { id: 1, data: &[] }; 129];
    begin_reply(&mut e, Version::GIOP_1_2, 1, ReplyStatus::NoException, &contexts).unwrap();
    finish_message(&mut e).unwrap();
    let message = e.to_vec();
    let parse = |limits| Reply::parse(&message, &header(&message), limits).map(|reply| reply.contexts.len());
    assert_eq!(parse(&Limits::DEFAULT), Err(CdrError::LimitExceeded));
    assert_eq!(parse(&Limits { max_service_contexts: 129, ..Limits::DEFAULT }), Ok(129));
}

#[test]
fn plain_reply_above_the_maximum_size_is_refused() {
    let mut e = encoder(Endian::NATIVE);
    begin_reply(&mut e, Version::GIOP_1_2, 1, ReplyStatus::NoException, &[]).unwrap();
    e.write_bytes(&[0; 6]);
    finish_message(&mut e).unwrap();
    let unread = e.to_vec();
    assert_eq!(Reply::parse_header_of_plain_result(&unread, 1, 18), Some(header(&unread)));
    assert_eq!(Reply::parse_header_of_plain_result(&unread, 1, 17), None);
}

proptest! {
    #[test]
    fn plain_reply_is_accepted_by_the_general_parser(
        id in 0_u32..4,
        asked in 0_u32..4,
        results in prop::collection::vec(any::<u8>(), 0..12),
        behind in prop::collection::vec(any::<u8>(), 0..12),
        big: bool,
        changed in prop::option::of((0_usize..40, any::<u8>())),
        cut in prop::option::of(0_usize..40),
    ) {
        let mut e = encoder(if big { Endian::Big } else { Endian::Little });
        begin_reply(&mut e, Version::GIOP_1_2, id, ReplyStatus::NoException, &[]).unwrap();
        e.write_bytes(&results);
        finish_message(&mut e).unwrap();
        let mut unread = e.to_vec();
        unread.extend_from_slice(&behind);
        if let Some((at, octet)) = changed
            && let Some(place) = unread.get_mut(at)
        {
            *place = octet;
        }
        unread.truncate(cut.unwrap_or(usize::MAX));
        let limits = Limits { max_message_size: 18, ..Limits::DEFAULT };
        let careful = || {
            let header = Header::parse(unread.first_chunk()?).ok()?;
            let message = unread.get(..header.total_len())?;
            let reply = Reply::parse(message, &header, &limits).ok()?;
            let is_plain = header.kind == MessageKind::Reply
                && header.version == Version::GIOP_1_2
                && !header.more_fragments
                && header.size <= limits.max_message_size
                && reply.request_id == asked
                && reply.status == ReplyStatus::NoException
                && reply.contexts.is_empty();
            is_plain.then_some((header, reply.body_offset))
        };
        let plain = Reply::parse_header_of_plain_result(&unread, asked, limits.max_message_size);
        match careful() {
            // The fast parser refuses undefined flags, which the general parser accepts.
            Some((header, body_offset)) if unread[6] <= 1 => prop_assert_eq!((plain, Reply::PLAIN_HEADER_LEN), (Some(header), body_offset)),
            _ => prop_assert_eq!(plain, None),
        }
    }
}
