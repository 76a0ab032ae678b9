//! Tests with captures whose packets are reordered, missing, repeated or damaged.

mod capture;

use corelane_sniff::{CaptureError, MessageContent, SniffEvent, SniffRecord, Sniffer, read_capture};
use corelane_wire::Encoder;
use corelane_wire::giop::{self, RequestHeader, TargetAddress, Version};
use proptest::prelude::*;

use capture::{Conversation, Sent, pcap, pcapng};

/// A sequence number near the maximum, so that the numbers wrap around within a conversation.
const NEAR_END: u32 = u32::MAX - 100;

fn request(id: u32, operation: &str) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: id,
        response_expected: giop::ResponseExpected::Target,
        target: TargetAddress::Key(b"a key"),
        operation: operation.as_bytes(),
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    giop::finish_message(&mut encoder).unwrap();
    encoder.into_reusable_buffer()
}

fn reply(id: u32) -> Vec<u8> {
    let mut encoder = Encoder::new();
    giop::begin_reply(&mut encoder, Version::GIOP_1_2, id, giop::ReplyStatus::NoException, &[]).unwrap();
    giop::finish_message(&mut encoder).unwrap();
    encoder.into_reusable_buffer()
}

fn line(seen: &SniffRecord<'_>) -> String {
    match &seen.event {
        SniffEvent::Message { content: MessageContent::Request(request), .. } => {
            format!("request {} {}", request.request_id, String::from_utf8_lossy(request.operation))
        }
        SniffEvent::Message { content: MessageContent::Reply(reply, Some(call)), .. } => {
            format!(
                "reply {} {} after {} us",
                reply.request_id,
                call.operation,
                seen.time_ns.saturating_sub(call.time_ns) / 1_000
            )
        }
        SniffEvent::Message { content: MessageContent::Reply(reply, None), .. } => {
            format!("reply {} alone", reply.request_id)
        }
        SniffEvent::Message { header, .. } => format!("{:?}", header.kind),
        SniffEvent::MissingBytes(octets) => format!("lost {octets}"),
        SniffEvent::UnfinishedMessage(octets) => format!("unfinished {octets}"),
        SniffEvent::Fault(fault) => format!("fault {fault}"),
        other => format!("{other:?}"),
    }
}

fn seen_in(file: &[u8]) -> (Vec<String>, Result<(), CaptureError>) {
    let mut sniffer = Sniffer::new(Vec::new());
    let mut lines = Vec::new();
    let mut last = 0;
    let outcome = read_capture(file, &mut |packet| {
        last = packet.time_ns;
        sniffer.process_packet(&packet, &mut |seen| lines.push(line(&seen)));
        Ok(())
    });
    sniffer.finish(last, &mut |seen| lines.push(line(&seen)));
    (lines, outcome)
}

fn lines_of(packets: &[Sent]) -> Vec<String> {
    let (lines, outcome) = seen_in(&pcap(packets));
    assert_eq!(outcome, Ok(()));
    lines
}

/// Returns a conversation of these packets: two SYN, a request in two segments, its reply, a second
/// request and its reply.
fn conversation(first: u32) -> Conversation {
    let mut conversation = Conversation::begin("192.0.2.1:4000", "192.0.2.2:2809", first);
    conversation.send(false, &request(1, "first"), 40);
    conversation.send(true, &reply(1), 1_400);
    conversation.send(false, &request(2, "second"), 1_400);
    conversation.send(true, &reply(2), 1_400);
    conversation
}

#[test]
fn replies_come_with_their_requests() {
    let packets = conversation(NEAR_END).packets;
    let expected =
        ["request 1 first", "reply 1 first after 1000 us", "request 2 second", "reply 2 second after 1000 us"];
    assert_eq!(lines_of(&packets), expected);
    assert_eq!(seen_in(&pcapng(&packets)), (expected.map(str::to_owned).to_vec(), Ok(())));
}

#[test]
fn lost_octets_are_reported_and_no_message_is_guessed() {
    let mut packets = conversation(NEAR_END).packets;
    let lost = packets.remove(3).octets.len();
    let found = lines_of(&packets);
    // The reply acknowledges the octets, so the server received them, and only the capture lacks
    // them.
    let lost = format!("lost {lost}");
    assert_eq!(found, [&lost, "reply 1 alone", "request 2 second", "reply 2 second after 1000 us"]);
    let expected = ["reply 1 alone", "request 2 second", "reply 2 second after 1000 us"];
    assert_eq!(lines_of(&conversation(NEAR_END).packets[3..]), expected);
    assert_eq!(lines_of(&conversation(NEAR_END).packets[..3]), ["unfinished 40"]);
}

#[test]
fn other_protocols_are_ignored_and_reused_ports_start_a_new_connection() {
    let mut packets = Vec::new();
    let mut http = Conversation::begin("192.0.2.1:4000", "192.0.2.2:80", 1);
    http.send(false, b"GET / HTTP/1.0\r\n\r\n", 3);
    http.send(true, &[b"HTTP/1.0 200 OK\r\n\r\n", &request(7, "in_a_body")[..]].concat(), 19);
    packets.append(&mut http.packets);
    for first in [NEAR_END, 1_000] {
        // Both connections use one pair of ports, and the capture lacks the end of the first
        // connection.
        packets.append(&mut conversation(first).packets);
    }
    let mut faulty = Conversation::begin("192.0.2.3:4000", "192.0.2.2:2809", NEAR_END);
    faulty.send(false, b"GIOP\x09\x09\x00\x00\x00\x00\x00\x00", 1_400);
    faulty.end();
    packets.append(&mut faulty.packets);
    let found = lines_of(&packets);
    assert_eq!(found.len(), 9, "{found:?}");
    assert_eq!(found[..4], found[4..8]);
    assert!(found[8].starts_with("fault expected GIOP 1.0, 1.1 or 1.2"), "{found:?}");
}

#[test]
fn truncated_or_damaged_file_is_read_up_to_the_damage() {
    let packets = conversation(NEAR_END).packets;
    for file in [pcap(&packets), pcapng(&packets)] {
        let whole = seen_in(&file);
        assert_eq!(whole.1, Ok(()));
        let (lines, outcome) = seen_in(&file[..file.len() - 1]);
        assert_eq!((&lines[..], outcome), (&whole.0[..3], Err(CaptureError::Truncated)));
    }
    assert_eq!(seen_in(b"").1, Err(CaptureError::UnknownFormat));
    assert_eq!(seen_in(&[7; 100]).1, Err(CaptureError::UnknownFormat));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn disorder_changes_no_message(
        size in 1_usize..100,
        keys in prop::collection::vec(0_usize..40, 200),
        repeated in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut conversation = Conversation::begin("192.0.2.1:4000", "192.0.2.2:2809", NEAR_END);
        for id in 0..6 {
            conversation.send(false, &request(id, "operation"), size);
        }
        let mut packets: Vec<(usize, Sent)> = conversation.packets.into_iter().enumerate().collect();
        for (place, (order, _)) in packets.iter_mut().enumerate().skip(2) {
            *order = place + 2 + keys.get(place % keys.len()).copied().unwrap_or_default();
        }
        for index in repeated {
            let (order, sent) = index.get(&packets).clone();
            packets.push((order + 5, sent));
        }
        packets.sort_by_key(|(order, _)| *order);
        let packets: Vec<Sent> = packets.into_iter().map(|(_, sent)| sent).collect();
        let expected: Vec<String> = (0..6).map(|id| format!("request {id} operation")).collect();
        prop_assert_eq!(lines_of(&packets), expected);
    }

    #[test]
    fn gap_never_becomes_a_message(size in 1_usize..200, missing in prop::collection::vec(any::<bool>(), 300)) {
        let mut conversation = Conversation::begin("192.0.2.1:4000", "192.0.2.2:2809", NEAR_END);
        for id in 0..6 {
            conversation.send(false, &request(id, &format!("operation_{id}")), size);
        }
        let kept = conversation.packets.into_iter().zip(missing).filter(|(_, missing)| !missing);
        let packets: Vec<Sent> = kept.map(|(sent, _)| sent).collect();
        for line in lines_of(&packets) {
            let id = line.strip_prefix("request ").map(|rest| rest.split(' ').next().unwrap_or_default().to_owned());
            let is_sent = id.is_some_and(|id| line == format!("request {id} operation_{id}"));
            prop_assert!(is_sent || line.starts_with("lost ") || line.starts_with("unfinished "), "{}", line);
        }
    }

    #[test]
    fn damaged_files_do_no_harm(at in any::<prop::sample::Index>(), octets in prop::collection::vec(any::<u8>(), 1..50), is_ng in any::<bool>()) {
        let packets = conversation(NEAR_END).packets;
        let mut file = if is_ng { pcapng(&packets) } else { pcap(&packets) };
        let at = at.index(file.len());
        for (place, octet) in octets.into_iter().enumerate().filter(|(place, _)| at + place < file.len()).collect::<Vec<_>>() {
            file[at + place] = octet;
        }
        let _ = seen_in(&file);
    }
}
