//! Admission of the peers of a channel with a schedule.

use std::sync::Arc;

use corelane::{Completion, SystemException, SystemExceptionKind as Kind, minor};
use corelane_sys::lock::MutexGuard;

use super::{ConnectFailure, SharedChannel, system};
use crate::events::filter::EventFilter;
use crate::events::header::EventHeader;
use crate::events::router::{DeclaredEvents, ProxyId, Publication};
use crate::events::schedule::{AdmittedConsumer, AdmittedPublication, Candidate, RateMeter, ScheduleConfig};
use crate::events::stored::HEADER_BYTES;

pub(super) type AdmissionGuard<'c> = Option<MutexGuard<'c, ()>>;

impl SharedChannel {
    /// Returns the declaration of a consumer whose dependencies name the entries `rt_infos`; `None`
    /// for best effort, and without a schedule. Gateways get best effort.
    pub(super) fn declared_handling(
        &self,
        proxy: ProxyId,
        is_gateway: bool,
        rt_infos: &[i32],
        filter: &Arc<EventFilter>,
    ) -> Result<Option<Box<AdmittedConsumer>>, SystemException> {
        let Some(ScheduleConfig { schedule, .. }) = self.config.schedule.as_ref().filter(|_| !is_gateway) else {
            return Ok(None);
        };
        let load = schedule
            .subscription_load(rt_infos)
            .map_err(|(at, why)| system(Kind::BadParam, format!("dependencies[{at}].rt_info: {why}")))?;
        let consumer = load.map(|(load, used)| AdmittedConsumer {
            proxy: proxy.0,
            used: used.into(),
            filter: Arc::clone(filter),
            load,
        });
        Ok(consumer.map(Box::new))
    }

    /// Returns a publication with this type and source, whose `rt_info` names a lane or an entry of
    /// the schedule. `at` is its index among the supplier's publications.
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
        entry.check_event(&header).map_err(|(field, why)| wrong(&format!("event.header.{field}"), why))?;
        let load = entry.load(lane);
        let max_bytes = entry.max_bytes().map(|bytes| (bytes as usize).saturating_add(HEADER_BYTES));
        let meter = RateMeter::new(entry.period(), load.jitter, max_bytes);
        let publication = AdmittedPublication { used: entry.entry_use(), header, period: entry.period(), load };
        Ok(Publication { header, lane: None, declared: Some(Box::new(DeclaredEvents { publication, meter })) })
    }

    pub(super) fn admit_supplier(
        &self,
        proxy: ProxyId,
        publications: &[Publication],
    ) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let declared = publications.iter().filter_map(|publication| publication.declared.as_deref());
        let new: Vec<AdmittedPublication> = declared.map(|declared| declared.publication.clone()).collect();
        if new.is_empty() { Ok(None) } else { self.admit(proxy, Candidate::Supplier(new)) }
    }

    pub(super) fn admit_consumer(
        &self,
        proxy: ProxyId,
        declared: Option<&AdmittedConsumer>,
    ) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let Some(consumer) = declared else { return Ok(None) };
        self.admit(proxy, Candidate::Consumer(Box::new(consumer.clone())))
    }

    fn admit(&self, proxy: ProxyId, candidate: Candidate) -> Result<AdmissionGuard<'_>, ConnectFailure> {
        let Some(ScheduleConfig { schedule, listener }) = &self.config.schedule else { return Ok(None) };
        let admission = self.admission.lock();
        let lanes = self.config.lanes.rt_infos().into_vec();
        // The state is not locked during the analysis. Peers that are disconnected in this time
        // only lessen the load.
        let load = {
            let state = self.state.lock();
            match &candidate {
                Candidate::Supplier(_) => state.router.check_supplier(proxy)?,
                Candidate::Consumer(_) => state.router.check_consumer(proxy).map(drop)?,
            }
            state.router.admitted_load(proxy, lanes, schedule.overhead_time())
        };
        let Err(refusal) = load.admit(proxy.0, candidate) else { return Ok(Some(admission)) };
        drop(admission);
        self.refusals.lock().add(refusal.clone());
        if let Some(listener) = &listener.0 {
            listener(&refusal);
        }
        let exception = SystemException::new(Kind::NoResources, minor::NOT_ADMITTED, Completion::No);
        Err(exception.with_message(refusal.to_string()).into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corelane::Orb;
    use corelane_sys::clock::now;
    use corelane_sys::mpsc::Mailbox;
    use corelane_sys::thread::ThreadBuilder;

    use super::*;
    use crate::events::{ChannelSchedule, EventChannel, EventLane};

    #[test]
    fn counts_and_refusals_do_not_wait_for_a_running_analysis() {
        let orb = Orb::new().unwrap();
        let lanes = [EventLane::new(20), EventLane::new(1)];
        let channel = EventChannel::builder().lanes(lanes).schedule(ChannelSchedule::new()).serve(&orb).unwrap();
        let (reader, read) = (channel.clone(), Arc::new(Mailbox::new(1).unwrap()));
        let analysis = channel.shared().admission.lock();
        let results = Arc::clone(&read);
        let thread = ThreadBuilder::new().name("reader").spawn(move || {
            let counts = reader.statistics().surplus.not_admitted + reader.shared().summary().surplus.not_admitted;
            results.send((counts, reader.refusals().len())).unwrap();
        });
        // The calls need far less than 60 s. A call that waited for the analysis would not end.
        assert_eq!(read.receive_until(Some(now() + Duration::from_secs(60))).unwrap(), Some((0, 0)));
        drop(analysis);
        thread.unwrap().join().unwrap();
    }
}
