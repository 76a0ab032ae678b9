//! Admission of the peers of a channel with a schedule.

use corelane::{Completion, SystemException, SystemExceptionKind as Kind, minor};
use corelane_sys::lock::MutexGuard;

use super::{ConnectFailure, SharedChannel, system};
use crate::events::filter::EventFilter;
use crate::events::header::EventHeader;
use crate::events::router::{DeclaredEvents, DeclaredHandling, ProxyId, Publication};
use crate::events::schedule::{AdmittedConsumer, AdmittedPublication, Candidate, RateMeter, Refusals, ScheduleConfig};
use crate::events::stored::HEADER_BYTES;

pub(super) type AdmissionGuard<'c> = Option<MutexGuard<'c, Refusals>>;

impl SharedChannel {
    /// Returns what a consumer declares whose dependencies name these entries; `None` for best
    /// effort, and without a schedule. Gateways get best effort.
    pub(super) fn declared_handling(
        &self,
        is_gateway: bool,
        rt_infos: &[i32],
        filter: &EventFilter,
    ) -> Result<Option<Box<DeclaredHandling>>, SystemException> {
        let Some(ScheduleConfig { schedule, .. }) = self.config.schedule.as_ref().filter(|_| !is_gateway) else {
            return Ok(None);
        };
        let load = schedule
            .subscription_load(rt_infos)
            .map_err(|(at, why)| system(Kind::BadParam, format!("dependencies[{at}].rt_info: {why}")))?;
        Ok(load.map(|load| Box::new(DeclaredHandling { filter: filter.clone(), load })))
    }

    /// Returns a publication with these type and source, which names a lane, or an entry of the
    /// schedule. `at` is its index among the supplier's publications.
    pub(in crate::events) fn publication(
        &self,
        at: usize,
        header: EventHeader,
        rt_info: i32,
        is_gateway: bool,
    ) -> Result<Publication, SystemException> {
        let Some(ScheduleConfig { schedule, .. }) = &self.config.schedule else {
            let lane = self.config.lanes.most_urgent(std::iter::once(rt_info))?;
            return Ok(Publication { header, lane, declared: None });
        };
        if rt_info == 0 || is_gateway {
            return Ok(Publication { header, lane: None, declared: None });
        }
        let wrong = |field: &str, why: String| system(Kind::BadParam, format!("publications[{at}].{field}: {why}"));
        let Some((entry, lane)) = schedule.publication_entry(rt_info, &self.config.lanes.rt_infos()) else {
            let why = format!("the schedule has no publication entry {rt_info}");
            return Err(wrong("dependency_info.rt_info", why));
        };
        if header.event_type.0 == 0 || (4..16).contains(&header.event_type.0) {
            return Err(wrong("event.header.type", "a publication with an entry has one type of events".to_owned()));
        }
        if header.source.0 == 0 {
            return Err(wrong("event.header.source", "a publication with an entry has one source".to_owned()));
        }
        let load = entry.load(lane);
        let max_bytes = entry.max_bytes().map(|bytes| (bytes as usize).saturating_add(HEADER_BYTES));
        let meter = RateMeter::new(entry.period(), load.jitter, max_bytes);
        let declared = DeclaredEvents { period: entry.period(), load, meter };
        Ok(Publication { header, lane: None, declared: Some(Box::new(declared)) })
    }

    pub(super) fn admit_supplier(
        &self,
        proxy: ProxyId,
        publications: &[Publication],
    ) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let admitted = |publication: &Publication| {
            let DeclaredEvents { period, load, .. } = publication.declared.as_deref()?;
            Some(AdmittedPublication { header: publication.header, period: *period, load: *load })
        };
        let new: Vec<AdmittedPublication> = publications.iter().filter_map(admitted).collect();
        if new.is_empty() { Ok(None) } else { self.admit(proxy, Candidate::Supplier(new)) }
    }

    pub(super) fn admit_consumer(
        &self,
        proxy: ProxyId,
        declared: Option<&DeclaredHandling>,
    ) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let Some(DeclaredHandling { filter, load }) = declared else { return Ok(None) };
        let consumer = AdmittedConsumer { proxy: proxy.0, filter: filter.clone(), load: *load };
        self.admit(proxy, Candidate::Consumer(Box::new(consumer)))
    }

    fn admit(&self, proxy: ProxyId, candidate: Candidate) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let Some(ScheduleConfig { schedule, listener }) = &self.config.schedule else { return Ok(None) };
        let mut refusals = self.refusals.lock();
        let lanes = self.config.lanes.rt_infos().into_vec();
        // Peers that are disconnected meanwhile only lessen the load.
        let load = self.state.lock().router.admitted_load(proxy, lanes, schedule.overhead_time());
        let Err(refusal) = load.admit(proxy.0, candidate) else { return Ok(Some(refusals)) };
        refusals.add(refusal.clone());
        drop(refusals);
        if let Some(listener) = &listener.0 {
            listener(&refusal);
        }
        let exception = SystemException::new(Kind::NoResources, minor::NOT_ADMITTED, Completion::No);
        Err(exception.because(refusal.to_string()).into())
    }
}
