//! The real-time policies of a POA, and their encoding in references.

use corelane_sched::lane_choice::PolicyViolation;
use corelane_sched::{Priority, PriorityBands, PriorityModel, PriorityModelPolicy};
use corelane_wire::CdrError;
use corelane_wire::rt::{self as wire, PriorityModelValue, policy_type};

use super::protocol::Protocol;
use crate::poa::PolicyIndex;
use crate::thread_context::ThreadpoolId;

/// Indices of the real-time policies in
/// [`PoaPolicies::POLICY_NAMES`](crate::poa::PoaPolicies::POLICY_NAMES).
pub(crate) mod policy_index {
    use crate::poa::PolicyIndex;

    pub(crate) const PRIORITY_MODEL: PolicyIndex = 7;
    pub(crate) const THREADPOOL: PolicyIndex = 8;
    pub(crate) const SERVER_PROTOCOL: PolicyIndex = 9;
    pub(crate) const CLIENT_PROTOCOL: PolicyIndex = 10;
    pub(crate) const PRIVATE_CONNECTION: PolicyIndex = 11;
    pub(crate) const BANDS: PolicyIndex = 12;
}

/// The real-time policies of a POA. [`RtOrb::set_policies`](super::RtOrb::set_policies) sets
/// defaults for the priority model, the thread pool and the server protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtPolicies {
    /// PriorityModelPolicy (40): the model, and the server priority. The server priority is the
    /// priority of requests for which no other priority is known.
    pub priority_model: Option<(PriorityModel, i16)>,
    /// ThreadpoolPolicy (41): the thread pool that runs requests to the POA. With `None`, the pools
    /// that the ORB's builder configured run them.
    pub threadpool: Option<ThreadpoolId>,
    /// ServerProtocolPolicy (42): the protocols that references to the POA's objects offer, the
    /// most preferred first, with the properties of the server's sockets. An empty list means all
    /// protocols.
    pub server_protocols: Vec<Protocol>,
    /// ClientProtocolPolicy (43): the protocols that clients may use, the most preferred first,
    /// with the properties of the clients' sockets. An empty list leaves the choice to the clients.
    pub client_protocols: Vec<Protocol>,
    /// PrivateConnectionPolicy (44). A policy of clients, so the creation of a POA fails if it is
    /// true.
    pub private_connection: bool,
    /// PriorityBandedConnectionPolicy (45): the lowest and the highest CORBA priority of each band.
    pub priority_bands: Option<Vec<(i16, i16)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckedPolicies {
    pub(crate) model: Option<PriorityModelPolicy>,
    pub(crate) bands: Option<PriorityBands>,
}

impl RtPolicies {
    /// Takes from `wider` the priority model, thread pool or list of server protocols that `self`
    /// does not set.
    pub(crate) fn with_defaults_from(&self, wider: &RtPolicies) -> RtPolicies {
        let server_protocols =
            if self.server_protocols.is_empty() { &wider.server_protocols } else { &self.server_protocols };
        RtPolicies {
            priority_model: self.priority_model.or(wider.priority_model),
            threadpool: self.threadpool.or(wider.threadpool),
            server_protocols: server_protocols.clone(),
            ..self.clone()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == RtPolicies::default()
    }

    pub(crate) fn check(&self) -> Result<CheckedPolicies, PolicyIndex> {
        if self.private_connection {
            return Err(policy_index::PRIVATE_CONNECTION);
        }
        for (protocols, index) in [
            (&self.server_protocols, policy_index::SERVER_PROTOCOL),
            (&self.client_protocols, policy_index::CLIENT_PROTOCOL),
        ] {
            if !protocols.iter().all(|protocol| protocol.is_valid()) {
                return Err(index);
            }
        }
        let declared = |(model, priority)| {
            Priority::new(priority)
                .map(|server_priority| PriorityModelPolicy { model, server_priority })
                .ok_or(policy_index::PRIORITY_MODEL)
        };
        let bands =
            |bands: &Vec<(i16, i16)>| PriorityBands::new(bands.iter().copied()).map_err(|_| policy_index::BANDS);
        Ok(CheckedPolicies {
            model: self.priority_model.map(declared).transpose()?,
            bands: self.priority_bands.as_ref().map(bands).transpose()?,
        })
    }

    pub(crate) fn reference_policies(&self, object: Option<Priority>) -> Result<Vec<(u32, Vec<u8>)>, CdrError> {
        let mut values = Vec::new();
        if let Some(bands) = &self.priority_bands {
            values.push((policy_type::PRIORITY_BANDED_CONNECTION, wire::encode_priority_bands(bands)?));
        }
        if !self.client_protocols.is_empty() {
            let protocols: Vec<_> = self.client_protocols.iter().map(|protocol| protocol.to_value()).collect();
            values.push((policy_type::CLIENT_PROTOCOL, wire::encode_protocols(&protocols)?));
        }
        if let Some((model, priority)) = self.priority_model {
            let own = object.filter(|_| model == PriorityModel::ServerDeclared).map(Priority::get);
            let value = PriorityModelValue { model: model.number(), server_priority: own.unwrap_or(priority) };
            values.push((policy_type::PRIORITY_MODEL, value.encode()?));
        }
        Ok(values)
    }
}

pub(crate) fn violating_policy(violation: PolicyViolation) -> PolicyIndex {
    match violation {
        PolicyViolation::LanesWithoutModel => policy_index::THREADPOOL,
        PolicyViolation::BandsWithoutModel | PolicyViolation::BandWithoutLane => policy_index::BANDS,
        PolicyViolation::OutsideBands | PolicyViolation::NoLane => policy_index::PRIORITY_MODEL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{TcpProperties, UnixProperties};
    use corelane_wire::rt;

    const CLIENT: PriorityModel = PriorityModel::ClientPropagated;

    #[test]
    fn invalid_policy_is_reported_by_its_index() {
        let refused = |policies: RtPolicies| policies.check().unwrap_err();
        assert_eq!(
            refused(RtPolicies { priority_model: Some((CLIENT, -1)), ..RtPolicies::default() }),
            policy_index::PRIORITY_MODEL
        );
        assert_eq!(
            refused(RtPolicies { private_connection: true, ..RtPolicies::default() }),
            policy_index::PRIVATE_CONNECTION
        );
        for bands in [vec![], vec![(5, 4)], vec![(-1, 4)], vec![(1, 4), (4, 9)]] {
            assert_eq!(
                refused(RtPolicies { priority_bands: Some(bands), ..RtPolicies::default() }),
                policy_index::BANDS
            );
        }
        assert!(RtPolicies::default().check().is_ok());
    }

    #[test]
    fn negative_buffer_sizes_are_refused() {
        let tcp = vec![Protocol::Tcp(TcpProperties { send_buffer_size: -1, ..TcpProperties::default() })];
        let unix = vec![Protocol::Unix(UnixProperties { recv_buffer_size: -1, ..UnixProperties::default() })];
        let server = RtPolicies { server_protocols: tcp.clone(), ..RtPolicies::default() };
        assert_eq!(server.check().unwrap_err(), policy_index::SERVER_PROTOCOL);
        let client = RtPolicies { client_protocols: unix, ..RtPolicies::default() };
        assert_eq!(client.check().unwrap_err(), policy_index::CLIENT_PROTOCOL);
        assert_eq!(tcp[0].socket_settings().properties.send_buffer_size, None);
    }

    #[test]
    fn reference_policies_carry_bands_protocols_and_object_priority() {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ServerDeclared, 7)),
            client_protocols: vec![Protocol::Tcp(TcpProperties::default())],
            priority_bands: Some(vec![(5, 15)]),
            ..RtPolicies::default()
        };
        let published = policies.reference_policies(Priority::new(9)).unwrap();
        assert_eq!(published.iter().map(|(policy, _)| *policy).collect::<Vec<_>>(), [45, 43, 40]);
        assert_eq!(PriorityModelValue::parse(&published[2].1), Ok(PriorityModelValue { model: 1, server_priority: 9 }));
        assert_eq!(rt::parse_priority_bands(&published[0].1), Ok(vec![(5, 15)]));
        let inherited = RtPolicies::default().with_defaults_from(&policies);
        assert_eq!((inherited.priority_model, inherited.priority_bands), (policies.priority_model, None));
    }
}
