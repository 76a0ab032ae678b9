//! The servants of a federated channel: `CorelaneEvents::FederatedChannel` and the outlets of its
//! gateways.

use std::sync::Arc;

use corelane::{Completion, SystemException, SystemExceptionKind as Kind, UpcallThread, upcall_thread};

use super::rtec::Channel;
use super::{nil_peer, peer, system};
use crate::events::channel::{ConnectFailure, SharedChannel, disconnected};
use crate::events::idl::corelane_events::{
    AcceptedEvents, ChannelDemand, FederatedChannel, GatewayConsumerRef, GatewayOutlet, GatewayOutletRef, GatewayState,
    PassingEvent,
};
use crate::events::router::ProxyId;

fn refusal(failure: ConnectFailure) -> SystemException {
    match failure {
        ConnectFailure::System(exception) => exception,
        ConnectFailure::AlreadyConnected => system(Kind::Internal, "the outlet is connected twice"),
        ConnectFailure::InvalidFilter(error) => {
            SystemException::new(Kind::ImpLimit, 0, Completion::No).with_message(error.to_string())
        }
    }
}

/// Refuses gateways of other processes if the channel does not permit them.
fn check_permission(channel: &SharedChannel) -> Result<(), SystemException> {
    // A call in a thread of the application comes from this process, so it needs no permission.
    if channel.config.is_joined_by_clients || upcall_thread() == UpcallThread::Application {
        return Ok(());
    }
    Err(system(Kind::NoPermission, "clients of this channel may not join it to others"))
}

impl FederatedChannel for Channel {
    fn channel_number(&self) -> Result<u64, SystemException> {
        Ok(self.end.0.channel_number())
    }

    fn demands(&self) -> Result<Vec<ChannelDemand>, SystemException> {
        Ok(self.end.0.demands())
    }

    fn open_outlet(
        &self,
        gateway: Option<&GatewayConsumerRef>,
        demands: &[ChannelDemand],
    ) -> Result<Option<GatewayOutletRef>, SystemException> {
        check_permission(&self.end.0)?;
        let gateway = peer(&self.end.0, gateway.ok_or_else(nil_peer)?)?;
        let channel = Arc::clone(&self.end.0);
        let outlet = |proxy| GatewayOutlet::servant(Outlet { channel, proxy });
        self.end.0.open_outlet(&gateway, demands, outlet).map(Some).map_err(refusal)
    }

    fn accept(&self, events: &[PassingEvent]) -> Result<AcceptedEvents, SystemException> {
        check_permission(&self.end.0)?;
        self.end.0.accept(events)
    }
}

struct Outlet {
    channel: Arc<SharedChannel>,
    proxy: ProxyId,
}

impl GatewayOutlet for Outlet {
    fn set_demands(&self, demands: &[ChannelDemand]) -> Result<(), SystemException> {
        self.channel.set_demands(self.proxy, demands).map_err(refusal)
    }

    fn report(&self, state: &GatewayState) -> Result<(), SystemException> {
        self.channel.note_gateway(self.proxy, state)
    }

    fn close(&self) -> Result<(), SystemException> {
        if self.channel.close_outlet(self.proxy) { Ok(()) } else { Err(disconnected()) }
    }
}
