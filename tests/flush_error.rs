//! What a sink's error becomes: any error is one by `?`, and its source is kept.

mod support;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Loss, Retry};

use self::support::{ms, paused};

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl Error for Refused {}

#[test]
fn any_error_becomes_a_flush_error_by_the_question_mark_and_keeps_its_source() {
    fn own() -> Result<(), FlushError> {
        Err(Refused)?
    }
    fn io() -> Result<(), FlushError> {
        Err(io::Error::new(io::ErrorKind::ConnectionReset, Refused))?
    }
    fn boxed() -> Result<(), FlushError> {
        Err(Box::<dyn Error + Send + Sync>::from(Refused))?
    }
    fn text() -> Result<(), FlushError> {
        Err("a slice")?
    }
    fn string() -> Result<(), FlushError> {
        Err(String::from("a string"))?
    }
    fn any() -> Result<(), FlushError> {
        Err(anyhow::Error::new(Refused).context("while inserting"))?
    }
    assert!(own().unwrap_err().source().is::<Refused>());
    assert!(boxed().unwrap_err().source().is::<Refused>());
    let error = io().unwrap_err();
    let inner = error.source().downcast_ref::<io::Error>().expect("the error itself");
    assert_eq!(inner.kind(), io::ErrorKind::ConnectionReset);
    assert!(inner.get_ref().is_some_and(|inner| inner.is::<Refused>()));
    assert_eq!(text().unwrap_err().to_string(), "a slice");
    assert_eq!(string().unwrap_err().source().to_string(), "a string");
    let error = any().unwrap_err();
    assert_eq!(error.source().to_string(), "while inserting");
    assert_eq!(error.source().source().map(ToString::to_string).as_deref(), Some("refused"));
    for error in [own(), io(), boxed(), text(), string(), any()] {
        let shown = format!("{:?}", error.unwrap_err());
        assert!(shown.contains("Retry"), "`?` means retry: {shown}");
    }
}

#[test]
fn the_loss_hook_is_given_the_error_itself() {
    paused(|| async {
        let kinds = Arc::new(Mutex::new(Vec::new()));
        let c = BackpressureController::builder(4)
            .fixed(4, ms(1))
            .retry(Retry::never())
            .on_loss({
                let kinds = Arc::clone(&kinds);
                move |loss: Loss<u32>| {
                    let error = loss.error.expect("the sink said why");
                    kinds.lock().unwrap().push(error.downcast_ref::<io::Error>().map(io::Error::kind));
                }
            })
            .spawn(|_: Batch<u32>| async { Err(io::Error::from(io::ErrorKind::BrokenPipe))? })
            .unwrap();
        c.push_all(0..4).await.unwrap();
        assert_eq!(c.flush().await.failed, 4);
        assert_eq!(*kinds.lock().unwrap(), [Some(io::ErrorKind::BrokenPipe); 4]);
    });
}

#[test]
fn what_a_sink_answers_can_be_looked_at() {
    let told =
        |error: FlushError| (error.is_retry(), error.throttled_for(), error.is_too_large(), error.is_permanent());
    assert_eq!(told(FlushError::retry("again")), (true, None, false, false));
    assert_eq!(told(FlushError::throttled("later", ms(5))), (false, Some(ms(5)), false, false));
    assert_eq!(told(FlushError::throttled("now", Duration::ZERO)), (false, Some(Duration::ZERO), false, false));
    assert_eq!(told(FlushError::too_large("half")), (false, None, true, false));
    assert_eq!(told(FlushError::permanent("no")), (false, None, false, true));
}
