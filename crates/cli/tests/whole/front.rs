//! The root of the control port: people get the console, programs a description.

use serde_json::Value;
use ureq::http::{Method, Request, Response};

use super::node::Dev;

/// The answer at the root, without following it.
fn ask(dev: &Dev, method: Method, accept: &str) -> Response<ureq::Body> {
    let config = ureq::Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(false);
    let request = Request::builder().method(method).uri(format!("http://{}/", dev.http));
    let request = request.header("accept", accept).body(()).unwrap();
    config.build().new_agent().run(request).unwrap()
}

#[test]
fn a_browser_is_led_to_the_console_and_a_program_is_not() {
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let dev = Dev::start();
    for method in [Method::GET, Method::HEAD] {
        let led = ask(&dev, method.clone(), BROWSER);
        assert_eq!(
            (led.status().as_u16(), &led.headers()["location"]),
            (307, &"/console/".parse().unwrap())
        );
        let told = ask(&dev, method, "*/*");
        assert_eq!(told.status().as_u16(), 200);
        assert_eq!(told.headers()["content-type"], "application/json");
    }
    let mut told = ask(&dev, Method::GET, "application/json");
    let told: Value = serde_json::from_reader(told.body_mut().as_reader()).unwrap();
    assert_eq!(told["name"], "fondaco");
    let page = ureq::get(format!("http://{}/", dev.http))
        .header("accept", BROWSER)
        .call();
    let page = page.unwrap().body_mut().read_to_string().unwrap();
    assert!(page.contains("<html"), "{page}");
}
