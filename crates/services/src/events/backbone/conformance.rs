//! A conformance suite for implementations of [`Backbone`].

use std::time::Duration;

use corelane_sys::clock::Monotonic;

use super::{Backbone, BackboneError, BackboneMessage};

/// Maximum time until the backbone delivers a message, for the first time or again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which the suite waits for a message that must not come.
const SHORT: Duration = Duration::from_millis(300);

/// Checks that a backbone does what [`Backbone`] says. `open` makes a connection; the backbone has
/// to be empty, and no other process may use it. The consumers of the suite are `check-1` to
/// `check-4`.
///
/// # Errors
/// The first rule that the backbone breaks, or the error of a call.
pub fn check_backbone<B: Backbone>(open: impl Fn() -> Result<B, BackboneError>) -> Result<(), String> {
    let open = || open().map_err(|error| format!("a connection failed: {error}"));
    let suite = Suite { open: &open };
    suite.identity_is_the_same_in_all_connections()?;
    suite.receiving_needs_a_subscription()?;
    let contents = suite.messages_arrive_unchanged_in_their_order()?;
    suite.message_comes_again_until_it_is_acknowledged(&contents)?;
    suite.consumers_have_positions_of_their_own(&contents)?;
    suite.message_that_is_too_large_is_refused_or_kept()
}

struct Suite<'s, B> {
    open: &'s dyn Fn() -> Result<B, String>,
}

fn failed(what: &str) -> impl Fn(BackboneError) -> String {
    move |error| format!("{what} failed: {error}")
}

fn rule(is_kept: bool, rule: &str) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(format!("the backbone breaks a rule: {rule}")) }
}

/// Returns the next message of a subscribed connection.
fn next(backbone: &mut impl Backbone) -> Result<BackboneMessage, String> {
    let deadline = Monotonic::now() + PATIENCE;
    while !deadline.is_past() {
        if let Some(message) = backbone.receive(Duration::from_secs(1)).map_err(failed("receive"))? {
            return Ok(message);
        }
    }
    Err(format!("a message has not come in {PATIENCE:?}"))
}

impl<B: Backbone> Suite<'_, B> {
    fn subscribed(&self, consumer: &str, first: u64) -> Result<B, String> {
        let mut backbone = (self.open)()?;
        backbone.subscribe(consumer, first).map_err(failed("subscribe"))?;
        Ok(backbone)
    }

    fn identity_is_the_same_in_all_connections(&self) -> Result<(), String> {
        let mut identities = [0; 2];
        for identity in &mut identities {
            *identity = (self.open)()?.identity().map_err(failed("identity"))?;
        }
        rule(identities[0] != 0 && identities[0] == identities[1], "its identity is constant and not 0")
    }

    fn receiving_needs_a_subscription(&self) -> Result<(), String> {
        let mut backbone = (self.open)()?;
        rule(backbone.receive(Duration::ZERO).is_err(), "receive without a subscription fails")?;
        rule(backbone.acknowledge().is_err(), "acknowledge without a message fails")
    }

    fn messages_arrive_unchanged_in_their_order(&self) -> Result<Vec<BackboneMessage>, String> {
        let every_octet: Vec<u8> = (0..=255).collect();
        let contents = [every_octet, vec![7; 256 << 10], b"third".to_vec(), b"fourth".to_vec(), b"fifth".to_vec()];
        let mut early = self.subscribed("check-1", 1)?;
        rule(
            early.receive(SHORT).map_err(failed("receive"))?.is_none(),
            "receive returns nothing from an empty backbone",
        )?;
        // Each message is published over a separate connection. The backbone must keep the order of
        // the calls.
        for content in &contents {
            (self.open)()?.publish(content).map_err(failed("publish"))?;
        }
        let mut received = Vec::new();
        for content in &contents {
            let message = next(&mut early)?;
            rule(message.octets == *content, "messages arrive unchanged, in the order of their publication")?;
            early.acknowledge().map_err(failed("acknowledge"))?;
            received.push(message);
        }
        let rises = received.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
        rule(rises && received[0].sequence > 0, "sequence numbers rise, from 1")?;
        Ok(received)
    }

    fn message_comes_again_until_it_is_acknowledged(&self, kept: &[BackboneMessage]) -> Result<(), String> {
        let is_first = |message: &BackboneMessage| *message == kept[0];
        {
            let mut reader = self.subscribed("check-2", 1)?;
            for _ in 0..2 {
                rule(
                    is_first(&next(&mut reader)?),
                    "a message comes again until it is acknowledged, before later ones",
                )?;
            }
        }
        let mut reader = self.subscribed("check-2", 1)?;
        rule(is_first(&next(&mut reader)?), "a message comes again in a new connection")?;
        reader.acknowledge().map_err(failed("acknowledge"))?;
        rule(next(&mut reader)? == kept[1], "the next message comes after an acknowledgement")?;
        reader.acknowledge().map_err(failed("acknowledge"))?;
        drop(reader);
        // The number 1 applies only to a new consumer. This known consumer must resume behind its
        // last acknowledgement.
        let mut reader = (self.open)()?;
        let resumed = reader.subscribe("check-2", 1).map_err(failed("subscribe"))?;
        rule(resumed == kept[1].sequence + 1, "subscribe returns the number behind the last acknowledgement")?;
        for message in &kept[2..] {
            rule(next(&mut reader)? == *message, "a consumer resumes behind its last acknowledgement")?;
            reader.acknowledge().map_err(failed("acknowledge"))?;
        }
        let rest = reader.receive(SHORT).map_err(failed("receive"))?;
        rule(rest.is_none(), "an acknowledged message does not come again")
    }

    fn consumers_have_positions_of_their_own(&self, kept: &[BackboneMessage]) -> Result<(), String> {
        let mut reader = self.subscribed("check-3", kept[2].sequence)?;
        rule(next(&mut reader)? == kept[2], "a new consumer begins with the message that it names")
    }

    fn message_that_is_too_large_is_refused_or_kept(&self) -> Result<(), String> {
        let mut publisher = (self.open)()?;
        let after = b"after the large one".to_vec();
        let large = vec![1; 16 << 20];
        let is_kept = match publisher.publish(&large) {
            Ok(()) => true,
            Err(BackboneError::TooLarge) => false,
            Err(error) => return Err(format!("a large message is neither kept nor refused: {error}")),
        };
        publisher.publish(&after).map_err(failed("publish after a refused message"))?;
        let mut reader = self.subscribed("check-4", 1)?;
        let mut expected = if is_kept { vec![large, after] } else { vec![after] };
        while !expected.is_empty() {
            let message = next(&mut reader)?;
            reader.acknowledge().map_err(failed("acknowledge"))?;
            if message.octets == expected[0] {
                expected.remove(0);
            } else {
                rule(!expected.contains(&message.octets), "messages arrive in the order of their publication")?;
            }
        }
        Ok(())
    }
}
