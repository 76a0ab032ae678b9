//! Servers: periodic tasks that serve aperiodic requests with bounded processor time.

use super::bounds::{TWO, largest_periodic_load, one_plus, product, quotient};
use crate::task::{Nanos, Timing, Utilization};

/// Rule for when a server loses and regains its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The server loses its unused budget if no request waits at the start of its period.
    Polling,
    /// The server keeps its budget until the end of its period, so it may use two budgets back to
    /// back.
    Deferrable,
    /// The server regains used budget one period after its use (sporadic and constant-bandwidth
    /// servers).
    Sporadic,
}

/// A server for aperiodic requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AperiodicServer {
    /// The rule for the server's budget.
    pub kind: ServerKind,
    /// Execution time of the server in each period.
    pub budget: Nanos,
    /// Interval at which the server regains its budget.
    pub period: Nanos,
}

impl AperiodicServer {
    /// Returns a periodic task that interferes with lower tasks as much as this server.
    #[must_use]
    pub fn as_periodic_task(self) -> Timing {
        let timing = Timing::new(self.budget, self.period);
        match self.kind {
            ServerKind::Polling | ServerKind::Sporadic => timing,
            ServerKind::Deferrable => timing.with_jitter(self.period.saturating_sub(self.budget)),
        }
    }
}

/// Returns the utilization up to which `tasks` periodic tasks are schedulable together with a
/// server.
///
/// The priorities are rate-monotonic, and the server, of utilization `server`, has the highest
/// priority. The result is rounded down. With n tasks and a server of utilization Us it is n ((2 /
/// (Us + 1))^(1/n) - 1) for a polling or sporadic server and n (((Us + 2) / (2 Us + 1))^(1/n) - 1)
/// for a deferrable server.
///
/// No task may have a shorter period than the server. With a deferrable server, no task may have a
/// shorter period than the sum of the server's period and budget.
#[must_use]
pub fn max_periodic_utilization(kind: ServerKind, server: Utilization, tasks: u32) -> Utilization {
    let share = server.min(Utilization::ONE);
    let bound = match kind {
        ServerKind::Polling | ServerKind::Sporadic => quotient(TWO, one_plus(share)),
        ServerKind::Deferrable => {
            let twice = Utilization(share.0 * 2);
            quotient(one_plus(share.saturating_add(Utilization::ONE)), one_plus(twice))
        }
    };
    largest_periodic_load(tasks, bound)
}

/// Returns true if aperiodic requests through stages with these utilizations meet their deadlines
/// under deadline-monotonic priorities (Abdelzaher, Thaker and Lardieri 2004). With the utilization
/// U of each stage, the sum of U (1 - U / 2) / (1 - U) over the stages must be at most 1.
#[must_use]
pub fn aperiodic_stages_fit(stages: &[Utilization]) -> bool {
    let unit = one_plus(Utilization::default());
    let mut sum = 0_u128;
    for &stage in stages {
        if stage >= Utilization::ONE {
            return false;
        }
        let share = one_plus(stage) - unit;
        let term = product(share, unit - share / 2) * unit;
        sum += term.div_ceil(unit - share);
        if sum > unit {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: u64 = 100_000_000;

    #[test]
    fn periodic_loads_beside_servers() {
        let load = |kind, tenths: u64| {
            (max_periodic_utilization(kind, Utilization(tenths * TENTH), 1 << 16).0 + 500_000) / 1_000_000
        };
        assert_eq!([1, 2, 3].map(|tenths| load(ServerKind::Polling, tenths)), [598, 511, 431]);
        assert_eq!([1, 2, 3].map(|tenths| load(ServerKind::Deferrable, tenths)), [560, 452, 363]);
        let none = max_periodic_utilization(ServerKind::Polling, Utilization(0), 3);
        assert_eq!(none, crate::analysis::bounds::liu_layland_bound(3));
        assert_eq!(max_periodic_utilization(ServerKind::Polling, Utilization(u64::MAX), 3), Utilization(0));
    }

    #[test]
    fn bound_beside_a_deferrable_server_is_for_periods_beyond_two_budgets() {
        use crate::analysis::response_time::response_time;
        let server = AperiodicServer { kind: ServerKind::Deferrable, budget: 50, period: 100 }.as_periodic_task();
        assert_eq!(max_periodic_utilization(ServerKind::Deferrable, server.utilization(), 1), Utilization(250_000_000));
        let response =
            |period| response_time(&Timing::new(period / 4, period), &[server]).map(|found| found.from_arrival);
        assert_eq!(response(100), Some(125), "two budgets are as long as the period");
        assert!((150..1_000).filter(|period| period % 4 == 0).all(|period| response(period) <= Some(period)));
    }

    #[test]
    fn aperiodic_requests_over_equal_stages() {
        let cap = |stages: usize| {
            let fits = |thousandths: &u64| aperiodic_stages_fit(&vec![Utilization(thousandths * 1_000_000); stages]);
            (1..1000).rev().find(fits).expect("some utilization fits")
        };
        // The published bounds are .586/.382/.279/.219/.180, rounded to the nearest; `cap` rounds
        // down.
        assert_eq!([1, 2, 3, 4, 5].map(cap), [585, 381, 279, 219, 180]);
        assert!(!aperiodic_stages_fit(&[Utilization::ONE]));
        assert!(aperiodic_stages_fit(&[]));
    }

    #[test]
    fn a_deferrable_server_may_use_two_budgets_back_to_back() {
        let server = AperiodicServer { kind: ServerKind::Deferrable, budget: 2, period: 10 };
        assert_eq!(crate::analysis::max_arrivals(&server.as_periodic_task(), 3), 2);
        let sporadic = AperiodicServer { kind: ServerKind::Sporadic, ..server };
        assert_eq!(crate::analysis::max_arrivals(&sporadic.as_periodic_task(), 3), 1);
    }
}
