//! End-to-end response times of chains of tasks over several processors (Tindell and Clark 1994).
//!
//! The difference between the best and the worst response time of a stage adds to the jitter of the
//! next stage. Jitter lengthens response times, so the analysis repeats until neither changes.

use super::response_time::response_time;
use crate::task::{Nanos, Timing};

/// Maximum number of rounds of [`end_to_end_responses`], after which it fails.
pub const MAX_CHAIN_ITERATIONS: u32 = 1 << 12;

/// One task of a chain on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStage {
    /// The processor that runs the stage.
    pub processor: usize,
    /// The stage's priority on its processor; a larger number is more urgent. Stages with equal
    /// priority interfere with each other.
    pub priority: u32,
    /// The stage's timing. The deadline is ignored, as is the minimum distance of a later stage.
    /// The jitter of a first stage is the jitter of the chain's arrivals. The jitter of a later
    /// stage is added to the jitter that its predecessor causes.
    pub timing: Timing,
    /// Shortest execution time of the stage's jobs.
    pub best_case_execution: Nanos,
    /// Index of the stage's predecessor, if it has one.
    pub predecessor: Option<usize>,
    /// Maximum clock difference between the hosts of this stage and its predecessor; 0 if both run
    /// on one host.
    pub max_clock_error: Nanos,
}

/// Response times of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageResponse {
    /// Worst-case time from the moment at which the stage's job is ready to its completion.
    pub response: Nanos,
    /// Worst-case time from the chain's arrival to the completion of the stage's job.
    pub end_to_end_response: Nanos,
    /// Release jitter of the stage.
    pub jitter: Nanos,
}

/// The reason why the stages of a system have no response times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// The stage at this index follows a stage that does not exist, or it follows itself, directly
    /// or indirectly.
    InvalidPredecessor(usize),
    /// The analysis finds no bound for the stage at this index, for example because its processor
    /// is overloaded or jitter grows with each round.
    Unbounded(usize),
}

impl std::fmt::Display for ChainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InvalidPredecessor(place) => {
                write!(f, "stage {place} follows a stage that does not exist, or itself")
            }
            Self::Unbounded(place) => write!(f, "stage {place} has no worst-case response time"),
        }
    }
}

impl std::error::Error for ChainError {}

/// Returns the response times of all stages.
///
/// # Errors
/// [`ChainError`] if a predecessor is invalid, or if a stage has no response time.
pub fn end_to_end_responses(stages: &[ChainStage]) -> Result<Vec<StageResponse>, ChainError> {
    let order = predecessors_first(stages)?;
    let mut timings: Vec<Timing> = stages.iter().map(|stage| stage.timing).collect();
    let mut found = vec![StageResponse::default(); stages.len()];
    for &place in &order {
        timings[place].min_interarrival = distance(stages, &timings, &found, place);
    }
    for _ in 0..MAX_CHAIN_ITERATIONS {
        let mut changed = false;
        for &place in &order {
            let response = one(stages, &timings, place).ok_or(ChainError::Unbounded(place))?;
            let next = linked(stages, &found, place, response).ok_or(ChainError::Unbounded(place))?;
            let min_distance = distance(stages, &timings, &found, place);
            let timing = Timing { jitter: next.jitter, min_interarrival: min_distance, ..timings[place] };
            if next != found[place] || timing != timings[place] {
                changed = true;
                found[place] = next;
                timings[place] = timing;
            }
        }
        if !changed {
            return Ok(found);
        }
    }
    Err(ChainError::Unbounded(order.last().copied().unwrap_or(0)))
}

fn one(stages: &[ChainStage], timings: &[Timing], place: usize) -> Option<Nanos> {
    let stage = &stages[place];
    let interferes = |&other: &usize| {
        other != place && stages[other].processor == stage.processor && stages[other].priority >= stage.priority
    };
    let others: Vec<Timing> = (0..stages.len()).filter(interferes).map(|other| timings[other]).collect();
    response_time(&timings[place], &others).map(|response| response.from_ready)
}

/// Returns the shortest time between the moments at which two successive jobs of a stage become
/// ready.
///
/// The predecessor completes jobs at least one shortest execution time apart, because they run one
/// after the other.
fn distance(stages: &[ChainStage], timings: &[Timing], found: &[StageResponse], place: usize) -> Nanos {
    let stage = &stages[place];
    let Some(before) = stage.predecessor else { return stage.timing.min_interarrival };
    let apart = timings[before].min_interarrival.saturating_sub(variation(stages, found, before));
    apart.max(shortest(&stages[before])).saturating_sub(stage.timing.jitter)
}

fn variation(stages: &[ChainStage], found: &[StageResponse], place: usize) -> Nanos {
    found[place].response.saturating_sub(shortest(&stages[place]))
}

fn shortest(stage: &ChainStage) -> Nanos {
    stage.best_case_execution.min(stage.timing.execution)
}

fn linked(stages: &[ChainStage], found: &[StageResponse], place: usize, response: Nanos) -> Option<StageResponse> {
    let stage = &stages[place];
    let own = stage.timing.jitter;
    let Some(before) = stage.predecessor else {
        return Some(StageResponse { response, end_to_end_response: response.checked_add(own)?, jitter: own });
    };
    let varies = variation(stages, found, before);
    let jitter = found[before].jitter.checked_add(varies)?.checked_add(own)?.checked_add(stage.max_clock_error)?;
    let end_to_end = found[before]
        .end_to_end_response
        .checked_add(response)?
        .checked_add(own)?
        .checked_add(stage.max_clock_error)?;
    Some(StageResponse { response, end_to_end_response: end_to_end, jitter })
}

fn predecessors_first(stages: &[ChainStage]) -> Result<Vec<usize>, ChainError> {
    let mut order = Vec::with_capacity(stages.len());
    let mut placed = vec![false; stages.len()];
    for start in 0..stages.len() {
        let mut path = Vec::new();
        let mut place = start;
        while !placed[place] {
            if path.len() == stages.len() {
                // After as many steps as there are stages, the place is on a cycle.
                return Err(ChainError::InvalidPredecessor(place));
            }
            path.push(place);
            match stages[place].predecessor {
                Some(before) if before < stages.len() => place = before,
                Some(_) => return Err(ChainError::InvalidPredecessor(place)),
                None => break,
            }
        }
        for place in path.into_iter().rev() {
            placed[place] = true;
            order.push(place);
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(processor: usize, priority: u32, worst: Nanos, best: Nanos, period: Nanos) -> ChainStage {
        ChainStage {
            processor,
            priority,
            timing: Timing::new(worst, period),
            best_case_execution: best,
            predecessor: None,
            max_clock_error: 0,
        }
    }

    /// Returns the example of pyCPA's documentation: two resources under static priorities, and two
    /// chains with jitter.
    fn example() -> [ChainStage; 4] {
        let mut stages = [stage(0, 2, 10, 5, 30), stage(0, 1, 3, 1, 15), stage(1, 2, 2, 2, 30), stage(1, 1, 9, 4, 15)];
        stages[0].timing.jitter = 5;
        stages[1].timing.jitter = 6;
        stages[2].predecessor = Some(0);
        stages[3].predecessor = Some(1);
        stages
    }

    #[test]
    fn two_chains_over_two_resources() {
        let found = end_to_end_responses(&example()).expect("a fixed point");
        assert_eq!(found.iter().map(|stage| stage.response).collect::<Vec<_>>(), [10, 13, 2, 19]);
        assert_eq!(found[3].jitter, 6 + 13 - 1);
        assert_eq!(found[3].end_to_end_response, 6 + 13 + 19);
    }

    fn bursts(stages: &[(Nanos, Nanos)], below: Nanos) -> Vec<ChainStage> {
        let mut chain: Vec<ChainStage> =
            stages.iter().enumerate().map(|(place, &(worst, best))| stage(place, 2, worst, best, 10)).collect();
        (1..chain.len()).for_each(|place| chain[place].predecessor = Some(place - 1));
        chain[0].timing.jitter = 20;
        chain.push(stage(stages.len() - 1, 1, below, below, 100));
        chain
    }

    #[test]
    fn jobs_leave_a_stage_closer_together_than_they_came() {
        let found = end_to_end_responses(&bursts(&[(5, 5), (3, 1), (2, 2)], 2)).expect("a fixed point");
        // The task runs for 2 units, and two jobs of 2 units, 3 units apart, preempt it.
        assert_eq!(found[3].response, 6);
    }

    #[test]
    fn jitter_of_a_step_brings_jobs_closer_together() {
        let mut stages = bursts(&[(5, 5), (2, 2)], 1);
        stages[1].timing.jitter = 5;
        let found = end_to_end_responses(&stages).expect("a fixed point");
        assert!(found[2].response > 2 * 2, "two jobs may come together: {found:?}");
    }

    #[test]
    fn the_shortest_time_of_a_stage_is_at_most_its_longest() {
        let mut stages = bursts(&[(5, 5), (2, 2)], 1);
        stages[0].best_case_execution = 50;
        let found = end_to_end_responses(&stages).expect("a fixed point");
        // The task runs for 1 unit after a job of 2 units. The next job comes 5 units after the
        // first.
        assert_eq!(found[2].response, 3);
        stages[2].timing.execution = 4;
        assert_eq!(end_to_end_responses(&stages).expect("a fixed point")[2].response, 4 + 2 * 2);
    }

    #[test]
    fn a_clock_error_adds_to_jitter_and_end_to_end_time() {
        let mut stages = example();
        stages[2].max_clock_error = 3;
        let found = end_to_end_responses(&stages).expect("a fixed point");
        assert_eq!(found[2].jitter, 5 + (10 - 5) + 3);
        assert_eq!(found[2].end_to_end_response, 5 + 10 + 2 + 3);
    }

    #[test]
    fn chains_in_a_circle_or_without_a_start_are_refused() {
        let mut stages = example();
        stages[0].predecessor = Some(2);
        assert!(matches!(end_to_end_responses(&stages), Err(ChainError::InvalidPredecessor(_))));
        // Stage 0 leads into the cycle of stages 1 and 2, and is not a part of this cycle.
        (0..).zip([1, 2, 1]).for_each(|(stage, before): (usize, usize)| stages[stage].predecessor = Some(before));
        assert_eq!(end_to_end_responses(&stages), Err(ChainError::InvalidPredecessor(2)));
        stages[0].predecessor = Some(99);
        assert_eq!(end_to_end_responses(&stages), Err(ChainError::InvalidPredecessor(0)));
        assert_eq!(end_to_end_responses(&[]), Ok(vec![]));
    }

    #[test]
    fn an_overloaded_processor_has_no_end_to_end_time() {
        let mut stages = example();
        stages[0].timing.execution = 25;
        assert_eq!(end_to_end_responses(&stages), Err(ChainError::Unbounded(1)));
    }
}
