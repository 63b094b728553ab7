//! A scrape as Prometheus makes it: an exporter behind HTTP on the loopback, and one GET.
//!
//! `.ci/metrics.sh` has `promtool check metrics` read what this test writes into the file that `BACKPRESSURE_SCRAPE` names.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Retry, Strategy};
use metrics_exporter_prometheus::PrometheusBuilder;

use self::support::{SEC, ms, real};

/// Runs a controller through all that makes series, then leaves it with something in it.
async fn work() -> BackpressureController<u64> {
    let mut calls = 0;
    let sink = move |batch: Batch<u64>| {
        calls += 1;
        let call = calls;
        async move {
            tokio::time::sleep(ms(1)).await;
            drop(batch);
            match call {
                1 => Err(FlushError::retry("down")),
                2 => Err(FlushError::permanent("no")),
                _ => Ok(()),
            }
        }
    };
    let c = BackpressureController::builder(8)
        .name("orders")
        .fixed(4, ms(1))
        .retry(Retry::exponential(ms(1), ms(1)))
        .strategy(Strategy::BlockFor(SEC))
        .spawn(sink)
        .unwrap();
    for i in 0..100 {
        c.push(i).await.unwrap();
    }
    let _ = c.flush().await;
    c.try_push(1).unwrap();
    c
}

/// The body of the answer to one GET.
fn get(address: std::net::SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

#[test]
fn a_scrape_has_every_metric_with_help_and_type() {
    real(30 * SEC, || async {
        let handle = PrometheusBuilder::new().install_recorder().expect("this binary has no other recorder");
        let c = work().await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scraped = c.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            scraped.publish();
            let body = handle.render();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let body = get(address);
        server.join().unwrap();

        let is_own = |line: &str| line.contains(" backpressure_");
        let types = body.lines().filter(|line| line.starts_with("# TYPE") && is_own(line)).count();
        let helps = body.lines().filter(|line| line.starts_with("# HELP") && is_own(line)).count();
        assert_eq!((types, helps), (25, 25), "{body}");
        assert!(body.contains("backpressure_items_accepted_total{queue=\"orders\"} 101"), "{body}");
        assert!(body.contains("backpressure_items_lost_total{queue=\"orders\",reason=\"failed\"}"), "{body}");
        if let Some(path) = std::env::var_os("BACKPRESSURE_SCRAPE") {
            std::fs::write(path, body).unwrap();
        }
        assert!(c.drain(SEC).await.is_clean());
    });
}
