//! Backbones: message systems that keep events until each of several channels has them.
//!
//! [`Backbone`] is a connection to such a system. A [`Bridge`] is a process beside a channel: it
//! publishes the events of a durable channel, and delivers those of other bridges to its channel.
//! The channel itself knows no backbone, so it has neither the backbone's threads nor its runtime.
//!
//! [`MemoryBackbone`] is for tests. `bridges/nats` has a backbone of NATS JetStream.
//! [`check_backbone`] tells if an implementation keeps what a bridge needs.

mod bridge;
mod conformance;
mod delivering;
mod memory;
mod message;
mod publishing;
#[cfg(test)]
mod simulation;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use self::bridge::{Bridge, BridgeBuilder, BridgeCounts, BridgeStatus};
pub use self::conformance::check_backbone;
pub use self::memory::MemoryBackbone;

/// A connection to a sequence of messages that several processes append to and read.
///
/// Each consumer has a name and a position of its own: the first message that it has not
/// acknowledged. The backbone keeps the position for as long as it keeps the messages. A connection
/// that has failed is dropped, and replaced by a new one.
pub trait Backbone {
    /// Returns the identity of the backbone, which is not 0. It is the same in all connections, and
    /// after restarts.
    ///
    /// # Errors
    /// [`BackboneError::Failed`] if the backbone does not answer.
    fn identity(&mut self) -> Result<u64, BackboneError>;

    /// Appends a message. Returns when the backbone keeps it. A message that is appended after the
    /// return of this call comes later in the sequence.
    ///
    /// # Errors
    /// [`BackboneError::TooLarge`] if the message is not appended because of its size.
    /// [`BackboneError::Failed`] if the message may have been appended, or may still be.
    fn publish(&mut self, message: &[u8]) -> Result<(), BackboneError>;

    /// Lets this connection receive as the consumer of this name: 1 to 64 letters, digits and
    /// characters `-_`. A new consumer begins with the message `first`, or with the first message
    /// that is kept. A known consumer resumes behind the last message that it has acknowledged.
    /// Returns the lowest sequence number that the consumer's next message can have. If the next
    /// message has a higher number, the messages before it were deleted.
    ///
    /// # Errors
    /// [`BackboneError::Failed`] if the backbone refuses the consumer or does not answer.
    fn subscribe(&mut self, consumer: &str, first: u64) -> Result<u64, BackboneError>;

    /// Returns the first message that the consumer has not acknowledged; `None` if there was none
    /// for the time `wait`. A message comes again until it is acknowledged, possibly with a delay,
    /// and no later message comes before it. A message whose acknowledgement was lost comes again
    /// too.
    ///
    /// # Errors
    /// [`BackboneError::Failed`] without a subscription, or if the backbone does not answer.
    fn receive(&mut self, wait: Duration) -> Result<Option<BackboneMessage>, BackboneError>;

    /// Acknowledges the message that this connection has received last.
    ///
    /// # Errors
    /// [`BackboneError::Failed`] if there is none, or if the acknowledgement may be lost.
    fn acknowledge(&mut self) -> Result<(), BackboneError>;
}

/// A message of a [`Backbone`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackboneMessage {
    /// The number of the message, from 1. Later messages have higher numbers.
    pub sequence: u64,
    /// The content.
    pub octets: Vec<u8>,
}

/// The failure of a call to a [`Backbone`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackboneError {
    /// The message is larger than the backbone permits. It was not appended.
    TooLarge,
    /// The call failed, for this reason. It may have had its effect.
    Failed(String),
}

impl fmt::Display for BackboneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the message is too large for the backbone"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl Error for BackboneError {}
