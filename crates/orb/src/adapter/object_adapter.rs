//! The object adapter of an ORB, which handles requests with the ORB's client and server contexts
//! and its table of POAs.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use corelane_net::Endpoint;

use crate::client::context::{ClientContext, UpperLayers};
use crate::poa::PoaTable;
use crate::server_context::ServerContext;

#[derive(Debug)]
pub(crate) struct ObjectAdapter {
    /// A copy of the client context's pointer in `server`, which saves one memory load for each
    /// request.
    client: Arc<ClientContext>,
    server: Arc<ServerContext>,
    poa_table: Arc<PoaTable>,
}

impl ObjectAdapter {
    pub(crate) fn new(server: Arc<ServerContext>, poa_table: Arc<PoaTable>) -> Self {
        ObjectAdapter { client: Arc::clone(server.client()), server, poa_table }
    }

    pub(crate) fn register_with_client(self: &Arc<Self>) {
        self.client.set_upper_layers(Box::new(AdapterHandle(Arc::downgrade(self))));
    }

    #[inline]
    pub(crate) fn client(&self) -> &Arc<ClientContext> {
        &self.client
    }

    #[inline]
    pub(crate) fn server(&self) -> &Arc<ServerContext> {
        &self.server
    }

    #[inline]
    pub(crate) fn poa_table(&self) -> &PoaTable {
        &self.poa_table
    }
}

impl Deref for ObjectAdapter {
    type Target = ClientContext;

    #[inline]
    fn deref(&self) -> &ClientContext {
        &self.client
    }
}

/// A weak pointer, so that the client layer does not keep the object adapter alive.
struct AdapterHandle(Weak<ObjectAdapter>);

impl UpperLayers for AdapterHandle {
    fn run_maintenance(&self) {
        let Some(adapter) = self.0.upgrade() else { return };
        adapter.spares().evict_unused();
        let lanes = adapter.server.all_lanes();
        adapter.server.trim_memory(&lanes);
        if !adapter.has_ended() {
            adapter.poa_table.managers.report_parked(&adapter);
            for lane in lanes {
                lane.run_maintenance(&adapter);
            }
        }
    }

    fn lane_endpoints(&self) -> Vec<Endpoint> {
        let Some(adapter) = self.0.upgrade() else { return Vec::new() };
        let lanes = adapter.server.rt().lanes();
        lanes.iter().flat_map(|lane| lane.endpoints()).map(|endpoint| adapter.published(endpoint)).collect()
    }
}
