//! A backbone in the memory of one process, for tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::process;

use super::{Backbone, BackboneError, BackboneMessage};

/// Maximum size of a message in bytes, as in NATS.
const MAX_MESSAGE: usize = 1 << 20;

/// A backbone in the memory of this process. A clone is another connection to it.
///
/// ```
/// use std::time::Duration;
/// use corelane_services::events::backbone::{Backbone, MemoryBackbone};
///
/// let mut publisher = MemoryBackbone::new();
/// let mut reader = publisher.clone();
/// reader.subscribe("south", 1)?;
/// publisher.publish(b"event")?;
/// assert_eq!(reader.receive(Duration::ZERO)?.unwrap().octets, b"event");
/// reader.acknowledge()?;
/// assert_eq!(reader.receive(Duration::ZERO)?, None);
/// # Ok::<(), corelane_services::events::backbone::BackboneError>(())
/// ```
#[derive(Debug)]
pub struct MemoryBackbone {
    kept: Arc<Kept>,
    consumer: Option<String>,
    /// The sequence number of the message that was received last.
    received: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    identity: u64,
    state: Mutex<Sequence>,
    appended: Condvar,
}

#[derive(Debug, Default)]
struct Sequence {
    messages: Vec<Vec<u8>>,
    /// The number of the next message of each consumer.
    positions: HashMap<String, u64>,
}

impl MemoryBackbone {
    /// Creates an empty backbone.
    #[must_use]
    pub fn new() -> Self {
        let identity = process::random_number().unwrap_or_else(|_| Monotonic::now().as_nanos()).max(1);
        let state = Mutex::new("backbone in memory", LockScope::Orb, Sequence::default());
        Self { kept: Arc::new(Kept { identity, state, appended: Condvar::new() }), consumer: None, received: None }
    }
}

impl Default for MemoryBackbone {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryBackbone {
    fn clone(&self) -> Self {
        Self { kept: Arc::clone(&self.kept), consumer: None, received: None }
    }
}

impl Backbone for MemoryBackbone {
    fn identity(&mut self) -> Result<u64, BackboneError> {
        Ok(self.kept.identity)
    }

    fn publish(&mut self, message: &[u8]) -> Result<(), BackboneError> {
        if message.len() > MAX_MESSAGE {
            return Err(BackboneError::TooLarge);
        }
        self.kept.state.lock().messages.push(message.to_vec());
        self.kept.appended.notify_all();
        Ok(())
    }

    fn subscribe(&mut self, consumer: &str, first: u64) -> Result<u64, BackboneError> {
        let next = *self.kept.state.lock().positions.entry(consumer.to_owned()).or_insert(first.max(1));
        self.consumer = Some(consumer.to_owned());
        self.received = None;
        Ok(next)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<BackboneMessage>, BackboneError> {
        let consumer = self.consumer.as_ref().ok_or_else(|| BackboneError::Failed("no subscription".to_owned()))?;
        let deadline = Monotonic::now() + wait;
        let mut state = self.kept.state.lock();
        loop {
            let sequence = state.positions.get(consumer).copied().unwrap_or(1);
            let index = usize::try_from(sequence - 1).unwrap_or(usize::MAX);
            if let Some(octets) = state.messages.get(index) {
                self.received = Some(sequence);
                return Ok(Some(BackboneMessage { sequence, octets: octets.clone() }));
            }
            if deadline.is_past() {
                return Ok(None);
            }
            state = self.kept.appended.wait_until(state, Some(deadline)).0;
        }
    }

    fn acknowledge(&mut self) -> Result<(), BackboneError> {
        let received = self.consumer.as_ref().zip(self.received.take());
        let (consumer, sequence) = received.ok_or_else(|| BackboneError::Failed("no message".to_owned()))?;
        let mut state = self.kept.state.lock();
        let position = state.positions.entry(consumer.clone()).or_insert(1);
        *position = (*position).max(sequence + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_backbone;
    use super::*;

    #[test]
    fn backbone_in_memory_conforms() {
        let backbone = MemoryBackbone::new();
        check_backbone(|| Ok(backbone.clone())).unwrap();
    }
}
