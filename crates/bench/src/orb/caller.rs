//! Corelane's client in a process of its own, which answers lines of its standard input:
//!
//! | line | answer |
//! |---|---|
//! | `call OPERATION N` | `called`, after N calls; one more call precedes them if the result is compared in full |

use super::client::{target, untimed};
use super::generated::cubit::CountedTargetRef;
use super::non_polling_client_orb;
use crate::Failure;
use crate::operation::MeasuredOperation;
use crate::service::serve_lines;

pub(crate) fn serve(reference: &str) -> Result<(), Failure> {
    let orb = non_polling_client_orb(0)?;
    let target = target(&orb, reference)?;
    println!("ready");
    let answer = |line: &str| Some(answer(&target, line).unwrap_or_else(|failure| format!("error {failure}")));
    serve_lines(answer).map_err(|error| Failure::new(error.to_string()))
}

fn answer(target: &CountedTargetRef, line: &str) -> Result<String, Failure> {
    let (operation, count) = asked(line)?;
    untimed(target, operation, count)?;
    Ok("called".to_owned())
}

fn asked(line: &str) -> Result<(MeasuredOperation, usize), Failure> {
    let unknown = || Failure::new(format!("not understood: {line}"));
    let (operation, count) = line.strip_prefix("call ").and_then(|rest| rest.split_once(' ')).ok_or_else(unknown)?;
    Ok((MeasuredOperation::from_name(operation)?, count.parse().map_err(|_| unknown())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_refuses_lines_other_than_calls() {
        assert_eq!(asked("call longs4 0"), Ok((MeasuredOperation::Longs(4), 0)));
        for line in ["call octet", "call octet x", "call what 1", "run octet 1", ""] {
            assert!(asked(line).is_err(), "{line}");
        }
    }
}
