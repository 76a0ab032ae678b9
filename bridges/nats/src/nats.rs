//! A backbone in a stream of NATS JetStream.
//!
//! A message is a batch of events, and its publication is acknowledged by the server when the
//! stream has it. Each bridge reads as a durable pull consumer with one unacknowledged message at a
//! time, so that the server delivers no later message before an earlier one is acknowledged.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use async_nats::jetstream::{Context, Message};
use async_nats::{Client, ConnectError, ConnectOptions, jetstream};
use corelane_services::events::backbone::{Backbone, BackboneError, BackboneMessage};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

/// The deadline of each call to the server.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which the server delivers an unacknowledged message again. After the end of a bridge,
/// the next bridge waits for the message for this time.
const ACK_WAIT: Duration = Duration::from_secs(2);
/// Minimum time for which the server waits for a message. The server takes 0 as a wait without end.
const MIN_WAIT: Duration = Duration::from_millis(50);

fn failed(error: impl Display) -> BackboneError {
    BackboneError::Failed(error.to_string())
}

/// The address of a NATS server, the configuration of a stream, and the runtime of the connections.
#[derive(Clone)]
pub(crate) struct Server {
    runtime: Arc<Runtime>,
    url: String,
    config: Config,
}

impl Server {
    pub(crate) fn new(url: &str, stream: &str, max_bytes: i64) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("nats").enable_all().build();
        let config = Config {
            name: stream.to_owned(),
            subjects: vec![stream.to_owned()],
            max_bytes,
            retention: RetentionPolicy::Limits,
            ..Config::default()
        };
        let runtime = Arc::new(runtime.map_err(|error| error.to_string())?);
        Ok(Self { runtime, url: url.to_owned(), config })
    }

    fn context(&self) -> Result<(Client, Context), BackboneError> {
        let options = ConnectOptions::new().name("corelane-nats").connection_timeout(CALL_TIMEOUT);
        // The JetStream context starts a task of Tokio, so it is made in the runtime.
        let connected = self.runtime.block_on(async {
            let client = options.connect(&self.url).await?;
            Ok::<_, ConnectError>((client.clone(), jetstream::new(client)))
        });
        let (client, mut context) = connected.map_err(failed)?;
        context.set_timeout(CALL_TIMEOUT);
        Ok((client, context))
    }

    /// Connects to the server, and creates the stream if it is not there.
    pub(crate) fn connect(&self) -> Result<NatsBackbone, BackboneError> {
        let (client, context) = self.context()?;
        let stream = self.runtime.block_on(context.get_or_create_stream(self.config.clone())).map_err(failed)?;
        // Other policies delete messages that another bridge has not read yet. With other subjects,
        // the numbers of the messages would have gaps.
        let found = &stream.cached_info().config;
        if found.retention != RetentionPolicy::Limits || found.subjects != self.config.subjects {
            return Err(failed("the stream needs the retention policy `limits`, and its own name as its subject"));
        }
        if found.no_ack {
            return Err(failed("the stream does not acknowledge messages (`no_ack`)"));
        }
        Ok(NatsBackbone { server: self.clone(), client, context, stream, consumer: None, received: None })
    }

    pub(crate) fn delete_stream(&self) -> Result<(), String> {
        let (_, context) = self.context().map_err(|error| error.to_string())?;
        let deleted = self.runtime.block_on(context.delete_stream(&self.config.name));
        deleted.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// A connection to the stream.
pub(crate) struct NatsBackbone {
    server: Server,
    client: Client,
    context: Context,
    stream: Stream,
    consumer: Option<Consumer<pull::Config>>,
    received: Option<Message>,
}

impl NatsBackbone {
    fn wait_for<R>(&self, call: impl Future<Output = R>) -> R {
        self.server.runtime.block_on(call)
    }

    /// Returns an error if the connection is lost, because calls of the client would wait until the
    /// server returns.
    fn check_connection(&self) -> Result<(), BackboneError> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            _ => Err(failed("the connection to the server of NATS is lost")),
        }
    }
}

impl Backbone for NatsBackbone {
    fn identity(&mut self) -> Result<u64, BackboneError> {
        // The time of creation distinguishes the stream from a later stream of the same name.
        let info = self.stream.cached_info();
        let created = info.created.unix_timestamp_nanos().to_be_bytes();
        // Uses FNV-1a, because the identity must not change with the version of the compiler, as
        // the hash of the standard library may.
        let octets = info.config.name.bytes().chain(created);
        let hash = octets.fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
            (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Ok(hash.max(1))
    }

    fn publish(&mut self, message: &[u8]) -> Result<(), BackboneError> {
        self.check_connection()?;
        // A negative number is no limit.
        let max = self.stream.cached_info().config.max_message_size;
        if usize::try_from(max).is_ok_and(|max| max > 0 && message.len() > max) {
            return Err(BackboneError::TooLarge);
        }
        let subject = self.server.config.name.clone();
        let stored = self.wait_for(async { self.context.publish(subject, message.to_vec().into()).await?.await });
        match stored {
            Ok(ack) if ack.stream == self.server.config.name => Ok(()),
            Ok(ack) => Err(failed(format!("the stream {} has taken the message", ack.stream))),
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => Err(BackboneError::TooLarge),
            Err(error) => Err(failed(error)),
        }
    }

    fn subscribe(&mut self, consumer: &str, first: u64) -> Result<u64, BackboneError> {
        self.check_connection()?;
        let config = pull::Config {
            durable_name: Some(consumer.to_owned()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first.max(1) },
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            filter_subject: self.server.config.name.clone(),
            max_ack_pending: 1,
            ..pull::Config::default()
        };
        let created = self.wait_for(self.stream.get_or_create_consumer(consumer, config)).map_err(failed)?;
        let next = created.cached_info().ack_floor.stream_sequence + 1;
        let found = &created.cached_info().config;
        if found.max_ack_pending != 1 || found.ack_policy != AckPolicy::Explicit {
            return Err(failed(format!("the consumer {consumer} of the stream was not created by a bridge")));
        }
        (self.consumer, self.received) = (Some(created), None);
        Ok(next)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<BackboneMessage>, BackboneError> {
        let consumer = self.consumer.as_ref().ok_or_else(|| failed("there is no subscription"))?;
        self.check_connection()?;
        let next = async {
            let mut batch = consumer.batch().max_messages(1).expires(wait.max(MIN_WAIT)).messages().await;
            match &mut batch {
                Ok(batch) => batch.next().await.transpose().map_err(failed),
                Err(error) => Err(failed(error)),
            }
        };
        let received = self.wait_for(next)?;
        let Some(message) = received else {
            return self.check_connection().map(|()| None);
        };
        let sequence = message.info().map_err(failed)?.stream_sequence;
        let octets = message.payload.to_vec();
        self.received = Some(message);
        Ok(Some(BackboneMessage { sequence, octets }))
    }

    fn acknowledge(&mut self) -> Result<(), BackboneError> {
        let message = self.received.take().ok_or_else(|| failed("there is no message"))?;
        self.check_connection()?;
        self.wait_for(message.double_ack()).map_err(failed)
    }
}
