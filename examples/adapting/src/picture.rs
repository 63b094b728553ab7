//! The picture: a column for each trouble, a row for each curve; the state shades the depth.

use std::iter::once;

use backpressure::State;
use plotters::{
    coord::Shift,
    prelude::{ChartBuilder, DrawingArea, IntoDrawingArea as _, PathElement, RGBColor, Rectangle, SVGBackend, WHITE},
    style::{Color as _, IntoFont as _},
};

use crate::run::{CAPACITY, END, Point, Run, TARGET};

/// Pixels.
const SIZE: (u32, u32) = (1_200, 760);
const INK: RGBColor = RGBColor(31, 35, 40);
const CURVE: RGBColor = RGBColor(9, 105, 218);
const GOAL: RGBColor = RGBColor(164, 14, 38);
const STATE: RGBColor = RGBColor(188, 76, 0);

/// A row: what is drawn, and the top of its axis.
struct Curve {
    name: &'static str,
    top: f64,
    value: fn(&Point) -> Option<f64>,
    /// A line across it.
    goal: Option<f64>,
    has_states: bool,
}

/// All runs, as the text of an SVG file.
pub(crate) fn draw(runs: &[Run]) -> anyhow::Result<String> {
    let curves = [
        Curve { name: "batch, items", top: 750.0, value: |p| Some(p.batch), goal: None, has_states: false },
        Curve { name: "slots", top: 33.0, value: |p| Some(p.slots), goal: None, has_states: false },
        Curve {
            name: "longest call, ms; red: the target",
            top: 1_050.0,
            value: |p| p.latency,
            goal: Some(TARGET.as_millis() as f64),
            has_states: false,
        },
        Curve {
            name: "depth, items; shaded: Elevated, Critical, Blocked",
            top: 1.05 * CAPACITY as f64,
            value: |p| Some(p.depth),
            goal: None,
            has_states: true,
        },
    ];
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        page.fill(&WHITE)?;
        let cells = page.margin(6, 6, 6, 10).split_evenly((curves.len(), runs.len()));
        for (row, curve) in curves.iter().enumerate() {
            for (column, run) in runs.iter().enumerate() {
                let title = if row == 0 { format!("{}: {}", run.name, curve.name) } else { curve.name.to_owned() };
                draw_curve(&cells[row * runs.len() + column], run, curve, &title)?;
            }
        }
        page.present()?;
    }
    Ok(svg)
}

fn draw_curve(cell: &DrawingArea<SVGBackend<'_>, Shift>, run: &Run, curve: &Curve, title: &str) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(cell)
        .caption(title, ("sans-serif", 13).into_font().color(&INK))
        .x_label_area_size(20)
        .y_label_area_size(46)
        .margin(6)
        .build_cartesian_2d(0.0..END, 0.0..curve.top)?;
    let whole = |value: &f64| format!("{value:.0}");
    let seconds = |value: &f64| if *value == END { format!("{value:.0} s") } else { whole(value) };
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_labels(7).y_labels(4).axis_style(INK);
    mesh.x_label_formatter(&seconds).y_label_formatter(&whole).draw()?;
    if curve.has_states {
        let shades = run.points.windows(2).filter_map(|pair| Some((pair, shade(pair[0].state)?)));
        chart.draw_series(shades.map(|(pair, strength)| {
            Rectangle::new([(pair[0].at, 0.0), (pair[1].at, curve.top)], STATE.mix(strength).filled())
        }))?;
    }
    if let Some(goal) = curve.goal {
        chart.draw_series(once(PathElement::new([(0.0, goal), (END, goal)], GOAL.stroke_width(1))))?;
    }
    let points: Vec<_> = run.points.iter().filter_map(|point| Some((point.at, (curve.value)(point)?))).collect();
    chart.draw_series(once(PathElement::new(points, CURVE.stroke_width(1))))?;
    Ok(())
}

/// How strong the shade of a state is; the usual ones have none.
fn shade(state: State) -> Option<f64> {
    match state {
        State::Elevated => Some(0.12),
        State::Critical => Some(0.25),
        State::Blocked => Some(0.45),
        _ => None,
    }
}
