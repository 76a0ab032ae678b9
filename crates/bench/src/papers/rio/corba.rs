//! An object whose requests run in a lane of the receiver.

use std::fmt;
use std::io;
use std::sync::Arc;

use corelane::Orb;
use corelane::poa::PoaPolicies;
use corelane::rt::{DirectMapping, LaneConfig, LanesConfig, NativePriorityRange, PriorityModel, RtConfig, RtPolicies};
use corelane_net::{
    ConnectionProperties, Endpoint, IoClass, IoProperties, Listener, Monotonic, Stream, Transport, Transports,
};
use corelane_rio::RioTransport;

use super::link;
use super::shared::failed;
use super::variant::PRIORITY;
use crate::Failure;
use crate::orb::generated::cubit::CountedTarget;
use crate::orb::limits;
use crate::orb::servant::Echo;

/// A transport that ORBs neither attach nor detach, because the receiver attaches and detaches the
/// steering program.
pub(super) struct HeldTransport(pub(super) Arc<RioTransport>);

impl fmt::Debug for HeldTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Transport for HeldTransport {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.0.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.0.connect_with_properties(endpoint, properties, deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.0.listen(endpoint)
    }

    fn listen_with_io_properties(&self, endpoint: &Endpoint, io: &IoProperties) -> io::Result<Box<dyn Listener>> {
        self.0.listen_with_io_properties(endpoint, io)
    }
}

pub(super) fn serve_object(
    transport: Arc<dyn Transport>,
    class: IoClass,
    core: usize,
) -> Result<(Orb, String), Failure> {
    let rt = RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)));
    let builder = Orb::builder().real_time(rt).limits(limits()).transports(Transports::new(vec![transport]));
    let orb = builder.listen(format!("tcp:{}:0", link::RECEIVER)).build().map_err(failed)?;
    // Without `max_request_priority`, the lowest lane would read the connections of other machines.
    let lane = LaneConfig::default()
        .priority(PRIORITY.into())
        .max_request_priority(Some(i16::MAX))
        .io_class(class)
        .cores([core]);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, PRIORITY.into())),
        threadpool: Some(
            orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes([lane])).map_err(failed)?,
        ),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lane", Some(root.manager()), PoaPolicies::default(), &policies).map_err(failed)?;
    let reference = poa.activate(&CountedTarget::servant(Echo)).map_err(failed)?.to_string();
    root.manager().activate().map_err(failed)?;
    Ok((orb, reference))
}
