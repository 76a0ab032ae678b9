//! A factory of event channels with the interface of omniEvents.
//!
//! Invariant: `by_name` has each channel of the factory that has not ended, and each that is being
//! created. The lock is not held while a channel is created, which waits for the disk if the
//! channel is durable.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane::poa::{Poa, PoaPolicies};
use corelane::{Completion, ObjectRef, Orb, Servant, SystemException, SystemExceptionKind as Kind, Typed};
use corelane_sys::lock::{LockScope, Mutex};

use super::channel::{EventChannel, EventChannelBuilder};
use super::durable::{EventStore, Retention};
use super::keys::FACTORY_KEY;
use super::lifecycle::cos_life_cycle::generic_factory::CreateObjectError;
use super::lifecycle::cos_life_cycle::{CannotMeetCriteria, GenericFactory, InvalidCriteria, NameValuePair, NoFactory};
use super::lifecycle::cos_naming::NameComponent;
use super::lifecycle::omni_events;
use super::monitor::EventMonitor;

const POA: &str = "CorelaneEventFactory";
const MAX_CHANNELS: usize = 64;

/// A factory by which clients create event channels, with the interface of omniEvents.
///
/// Each new channel is a channel of CORBA's Event Service. The factory understands the criteria of
/// omniEvents: `InsName` is the channel's name and plain key, `MaxQueueLength` the maximum number
/// of events in a queue, `MaxNumProxies` the maximum number of consumers, `PullRetryPeriod_ms` (or
/// `PullRetryPeriod` in seconds) the time between two questions to a supplier. `CyclePeriod_ns` has
/// no effect, because a channel passes events on at once. A `FilterId` that is not empty raises
/// CannotMeetCriteria. `CorelaneDurable` asks for a [durable channel](Self::durable). Other
/// criteria are ignored.
///
/// ```
/// use std::sync::Arc;
///
/// use corelane::Orb;
/// use corelane_services::events::{EventChannel, EventChannelFactory};
///
/// let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build()?);
/// let factory = EventChannelFactory::new(EventChannel::builder()).serve(&orb)?;
/// println!("{factory}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventChannelFactory {
    builder: EventChannelBuilder,
    max_channels: usize,
    monitor: Option<EventMonitor>,
    durable: Option<(EventStore, Retention)>,
    needs_permission: bool,
}

impl EventChannelFactory {
    /// Creates the settings of a factory. The channels have the settings of `builder`, unless a
    /// client's criteria replace them.
    #[must_use]
    pub fn new(builder: EventChannelBuilder) -> Self {
        Self { builder, max_channels: MAX_CHANNELS, monitor: None, durable: None, needs_permission: false }
    }

    /// Sets the maximum number of channels at a time. At the maximum, `create_object` raises
    /// IMP_LIMIT. Default: 64.
    #[must_use]
    pub fn max_channels(mut self, count: usize) -> Self {
        self.max_channels = count;
        self
    }

    /// Lets the monitor show the channels of the factory. Default: none.
    #[must_use]
    pub fn monitor(mut self, monitor: &EventMonitor) -> Self {
        self.monitor = Some(monitor.clone());
        self
    }

    /// Lets clients create durable channels, with the criterion `CorelaneDurable`, a boolean. Such
    /// a channel keeps its events in this store. After a restart, the program must serve the
    /// channels of [`EventStore::channels`](EventStore::channels) itself. Any client that reaches
    /// the factory may use the room of the store, within its [limits](super::EventStoreLimits).
    /// Default: no store; the criterion then raises CannotMeetCriteria.
    #[must_use]
    pub fn durable(mut self, store: &EventStore, retention: Retention) -> Self {
        self.durable = Some((store.clone(), retention));
        self.needs_permission = false;
        self
    }

    /// Lets only the clients of the servant that
    /// [`serve_with_control_servant`](Self::serve_with_control_servant) returns create durable
    /// channels. Others get NO_PERMISSION.
    #[must_use]
    pub fn durable_by_permission(self, store: &EventStore, retention: Retention) -> Self {
        Self { needs_permission: true, ..self.durable(store, retention) }
    }

    /// Serves the factory in an ORB until the ORB ends. Binds the plain key `omniEvents` to the
    /// factory, and returns its reference.
    ///
    /// # Errors
    /// BAD_PARAM if the key is already bound; other errors of the ORB.
    pub fn serve(self, orb: &Arc<Orb>) -> Result<ObjectRef, SystemException> {
        Ok(self.serve_with_control_servant(orb)?.0)
    }

    /// Serves the factory as [`serve`](Self::serve) does. Also returns a servant of the same
    /// factory whose clients may create durable channels. The program decides which clients reach
    /// it.
    ///
    /// # Errors
    /// The errors of `serve`.
    pub fn serve_with_control_servant(self, orb: &Arc<Orb>) -> Result<(ObjectRef, Servant), SystemException> {
        let poa = orb.root_poa().create_poa(POA, None, PoaPolicies::default())?;
        let served = self.serve_in(orb, &poa);
        if served.is_err() {
            let _ = poa.destroy(false, false);
        }
        served
    }

    fn serve_in(self, orb: &Arc<Orb>, poa: &Poa) -> Result<(ObjectRef, Servant), SystemException> {
        let is_permitted = !self.needs_permission;
        let channels = Mutex::new("event channels of a factory", LockScope::Orb, CreatedChannels::default());
        let shared = Arc::new(SharedFactory { settings: self, orb: Arc::downgrade(orb), channels });
        let factory = |is_permitted| Factory { shared: Arc::clone(&shared), is_permitted };
        let reference = poa.activate(&omni_events::EventChannelFactory::servant(factory(is_permitted)))?;
        orb.bind_corbaloc_key(FACTORY_KEY, &reference)?;
        let activated = poa.manager().activate();
        activated.inspect_err(|_| {
            orb.unbind_corbaloc_key(FACTORY_KEY);
        })?;
        Ok((reference, omni_events::EventChannelFactory::servant(factory(true))))
    }
}

type CreatedChannel = Option<EventChannel>;

#[derive(Default)]
struct CreatedChannels {
    by_name: HashMap<String, CreatedChannel>,
    unnamed: u64,
}

#[derive(Debug)]
struct Factory {
    shared: Arc<SharedFactory>,
    is_permitted: bool,
}

struct SharedFactory {
    settings: EventChannelFactory,
    orb: Weak<Orb>,
    channels: Mutex<CreatedChannels>,
}

impl fmt::Debug for SharedFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFactory").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn system(kind: Kind, why: impl Into<String>) -> SystemException {
    SystemException::new(kind, 0, Completion::No).with_message(why.into())
}

fn is_supported(key: &[NameComponent]) -> bool {
    matches!(key, [only] if only.id == "EventChannel" && only.kind == "object interface")
}

fn value<T: Typed>(criterion: &NameValuePair) -> Result<T, CreateObjectError> {
    criterion.value.extract().map_err(|_| InvalidCriteria { invalid_criteria: vec![criterion.clone()] }.into())
}

impl Factory {
    fn channel(&self, criteria: &[NameValuePair]) -> Result<(EventChannelBuilder, Option<String>), CreateObjectError> {
        let (mut builder, mut name) = (self.shared.settings.builder.clone(), None);
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        for criterion in criteria {
            let unmet = || CannotMeetCriteria { unmet_criteria: vec![criterion.clone()] };
            match criterion.name.as_str() {
                "InsName" => name = Some(value::<String>(criterion)?).filter(|name| !name.is_empty()),
                "MaxQueueLength" => match value(criterion)? {
                    0 => {}
                    count => builder = builder.max_queued_sets(size(count)),
                },
                "MaxNumProxies" => match value(criterion)? {
                    0 => {}
                    count => builder = builder.max_consumers(size(count)),
                },
                "PullRetryPeriod_ms" => match value::<u32>(criterion)? {
                    0 => return Err(unmet().into()),
                    period => builder = builder.pull_interval(Duration::from_millis(period.into())),
                },
                "PullRetryPeriod" => match value::<u32>(criterion)? {
                    0 => return Err(unmet().into()),
                    period => builder = builder.pull_interval(Duration::from_secs(period.into())),
                },
                "CyclePeriod_ns" => {
                    value::<u32>(criterion)?;
                }
                "CorelaneDurable" if value(criterion)? => match &self.shared.settings.durable {
                    Some(_) if !self.is_permitted => {
                        let reason = "clients of this factory may not create durable channels";
                        return Err(system(Kind::NoPermission, reason).into());
                    }
                    Some((store, retention)) => builder = builder.durable(store, *retention),
                    None => return Err(unmet().into()),
                },
                "FilterId" if !value::<String>(criterion)?.is_empty() => return Err(unmet().into()),
                _ => {}
            }
        }
        Ok((builder, name))
    }
}

impl GenericFactory for Factory {
    fn supports(&self, k: &[NameComponent]) -> Result<bool, SystemException> {
        Ok(is_supported(k))
    }

    fn create_object(
        &self,
        k: &[NameComponent],
        the_criteria: &[NameValuePair],
    ) -> Result<Option<ObjectRef>, CreateObjectError> {
        if !is_supported(k) {
            return Err(NoFactory { search_key: k.to_vec() }.into());
        }
        let (builder, name) = self.channel(the_criteria)?;
        let orb = self.shared.orb.upgrade().ok_or_else(|| system(Kind::BadInvOrder, "the ORB has ended"))?;
        let refused = || {
            let named = the_criteria.iter().filter(|criterion| criterion.name == "InsName");
            CreateObjectError::from(InvalidCriteria { invalid_criteria: named.cloned().collect() })
        };
        let place = self.shared.enter(name)?.ok_or_else(refused)?;
        let channel = builder.name(&place.name).serve(&orb).map_err(|exception| match exception.kind() {
            // The name is not permitted, or another object has the key.
            Kind::BadParam => refused(),
            _ => exception.into(),
        })?;
        let reference = channel.cos_reference().as_object().clone();
        if let Some(monitor) = &self.shared.settings.monitor {
            monitor.add(&channel);
        }
        place.fill(channel);
        Ok(Some(reference))
    }
}

impl SharedFactory {
    /// Reserves the name of a channel. Returns `None` if the name is in use, and raises IMP_LIMIT
    /// at the maximum number of channels.
    fn enter(&self, name: Option<String>) -> Result<Option<ChannelPlace<'_>>, SystemException> {
        let mut channels = self.channels.lock();
        channels.by_name.retain(|_, created| created.as_ref().is_none_or(|channel| !channel.has_ended()));
        if channels.by_name.len() >= self.settings.max_channels {
            let reason = format!("the factory has made {} channels", self.settings.max_channels);
            return Err(system(Kind::ImpLimit, reason));
        }
        let name = name.unwrap_or_else(|| self.unused_name(&mut channels));
        if channels.by_name.contains_key(&name) {
            return Ok(None);
        }
        channels.by_name.insert(name.clone(), None);
        Ok(Some(ChannelPlace { factory: self, name }))
    }

    /// Makes a name that no channel of the factory or of its store has. A durable channel comes
    /// back under this name after a restart.
    fn unused_name(&self, channels: &mut CreatedChannels) -> String {
        let stored = self.settings.durable.as_ref().map(|(store, _)| store.channels()).unwrap_or_default();
        loop {
            channels.unnamed += 1;
            let name = format!("omniEvents-{}", channels.unnamed);
            if !channels.by_name.contains_key(&name) && !stored.contains(&name) {
                return name;
            }
        }
    }
}

/// The reserved name of a channel that is being created. If it is dropped without a channel, the
/// name is free again.
struct ChannelPlace<'f> {
    factory: &'f SharedFactory,
    name: String,
}

impl ChannelPlace<'_> {
    fn fill(self, channel: EventChannel) {
        self.factory.channels.lock().by_name.insert(self.name.clone(), Some(channel));
    }
}

impl Drop for ChannelPlace<'_> {
    fn drop(&mut self) {
        let mut channels = self.factory.channels.lock();
        if channels.by_name.get(&self.name).is_some_and(Option::is_none) {
            channels.by_name.remove(&self.name);
        }
    }
}

impl omni_events::EventChannelFactory for Factory {
    fn is_alive(&self) -> Result<bool, SystemException> {
        Ok(true)
    }
}
