//! Entry point for fuzzing: a function that must return for any input bytes. It panics if a
//! property is violated.

use crate::{MessageContent, SniffEvent, Sniffer, read_capture};

/// Reads a capture file, and checks that no two replies are matched with one request.
///
/// # Panics
/// If a reply is matched with a request that already has a reply, or the sniffer counts more
/// segments than the file has bytes.
pub fn sniff(input: &[u8]) {
    let mut sniffer = Sniffer::new(Vec::new());
    let mut requests = 0_u64;
    let mut count = |seen: crate::SniffRecord<'_>| match &seen.event {
        SniffEvent::Message { content: MessageContent::Request(_) | MessageContent::LocateRequest(_), .. } => {
            requests += 1
        }
        SniffEvent::Message {
            content: MessageContent::Reply(_, Some(_)) | MessageContent::LocateReply(_, Some(_)),
            ..
        } => {
            requests = requests.checked_sub(1).expect("each reply has a request of its own");
        }
        _ => {}
    };
    let _ = read_capture(input, &mut |packet| {
        sniffer.process_packet(&packet, &mut count);
        Ok(())
    });
    sniffer.finish(0, &mut count);
    assert!(sniffer.counts().tcp_segments <= input.len() as u64);
}
