//! One panel: a title, two lines of figures, and a curve over time.

use std::{ops::Range, time::Duration};

use backpressure::State;
use plotters::{
    coord::{cartesian::Cartesian2d, types::RangedCoordi32},
    prelude::{DrawingArea, PathElement, Polygon, RGBColor, Rectangle, SVGBackend, Text},
    style::{Color as _, FontStyle, text_anchor::HPos},
};

use crate::{
    load::{BATCH, CAPACITY, LOAD, Run, SERVICE, SPIKE, STEP, arrivals},
    picture::{Area, Palette, font, write},
};

/// The top of each depth axis: a channel holds a batch more than its capacity.
const TOP: i32 = 3_900;
/// The top of the axis of the load, in items a second.
const LOAD_TOP: i32 = 19_500;
/// The part of a panel that the curve is in, in pixels from its left, top, right and bottom.
const FRAME: (i32, i32, i32, i32) = (44, 54, 8, 40);
/// How far the bar of a step hangs down of which everything was lost.
const BAR: i32 = 14;
/// Pixels of a letter of the small font, roughly.
const LETTER: i32 = 7;

type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordi32, RangedCoordi32>>;

/// Draws a run.
pub(crate) fn draw_run(area: &Area<'_>, run: &Run, palette: &Palette) -> anyhow::Result<()> {
    let figures = &run.figures;
    let lost =
        if figures.lost == 0 { "none lost".to_owned() } else { format!("{} {}", grouped(figures.lost), figures.how) };
    let meaning = if figures.estimate == figures.delivered {
        String::new()
    } else {
        format!(" for {}", grouped(figures.estimate))
    };
    let lines = [
        format!("{} delivered{meaning}, {lost}", grouped(figures.delivered)),
        format!("longest wait {}, oldest {}", seconds(figures.longest_wait), seconds(figures.oldest)),
    ];
    head(area, run.name, run.rule, &lines, palette)?;
    let plot = plot(area, TOP);
    for (state, span) in states(run) {
        shade(area, &plot, state, span, palette)?;
    }
    for (share, name) in [(0.5, "low"), (0.8, "high"), (1.0, "full")] {
        let y = (share * CAPACITY as f64) as i32;
        let has_marks = run.trace.iter().any(|point| point.state.is_some());
        if has_marks || share == 1.0 {
            rule(&plot, y, palette.muted)?;
            label(area, &plot, y, name, palette)?;
        }
    }
    let points: Vec<_> = run.trace.iter().map(|point| (point.ms as i32, point.depth as i32)).collect();
    curve(&plot, points, palette.depth)?;
    bars(area, &plot, &run.lost, palette)?;
    axis(area, &plot, palette)
}

/// Draws what all runs have in common.
pub(crate) fn draw_load(area: &Area<'_>, palette: &Palette) -> anyhow::Result<()> {
    let [base, spike] = [0, SPIKE.start].map(|ms| arrivals(ms) * 1_000);
    let rate = BATCH as u64 * 1_000 / SERVICE.as_millis() as u64;
    let lines = [
        format!("{} items/s, {} for a second", grouped(base), grouped(spike)),
        format!("the sink: {BATCH} in {} ms, {}/s", SERVICE.as_millis(), grouped(rate)),
    ];
    head(area, "The load", "the same for all", &lines, palette)?;
    let plot = plot(area, LOAD_TOP);
    for y in [base, rate, spike] {
        label(area, &plot, y as i32, &grouped(y), palette)?;
    }
    rule(&plot, rate as i32, palette.muted)?;
    let at = plot.map_coordinate(&(LOAD.end as i32, rate as i32));
    absolute(area, "the sink's most", (at.0 - 4, at.1 - 8), HPos::Right, palette.muted)?;
    let points = [LOAD.start, SPIKE.start - 1, SPIKE.start, SPIKE.end - 1, SPIKE.end, LOAD.end - 1];
    let points = points.map(|ms| (ms as i32, arrivals(ms) as i32 * 1_000)).to_vec();
    curve(&plot, points, palette.ink)?;
    axis(area, &plot, palette)
}

fn head(area: &Area<'_>, name: &str, rule: &str, lines: &[String; 2], palette: &Palette) -> anyhow::Result<()> {
    let (left, _, right, _) = FRAME;
    let width = area.dim_in_pixel().0 as i32;
    area.draw(&Text::new(name.to_owned(), (left, 12), font(14.0, FontStyle::Bold, palette.ink, HPos::Left)))?;
    write(area, rule, (width - right, 12), 11.0, palette.muted, HPos::Right)?;
    write(area, &lines[0], (left, 29), 11.0, palette.ink, HPos::Left)?;
    write(area, &lines[1], (left, 44), 11.0, palette.ink, HPos::Left)
}

fn plot<'a>(area: &Area<'a>, top: i32) -> Plot<'a> {
    let (x, y) = area.get_pixel_range();
    let pixels = (x.start + FRAME.0..x.end - FRAME.2, y.end - FRAME.3..y.start + FRAME.1);
    area.clone().apply_coord_spec(Cartesian2d::new(0..LOAD.end as i32, 0..top, pixels))
}

/// The states that have a shade, and from when until when they held.
fn states(run: &Run) -> Vec<(State, Range<i32>)> {
    let mut spans: Vec<(State, Range<i32>)> = Vec::new();
    for point in &run.trace {
        let Some(state) = point.state else { continue };
        let ms = point.ms as i32;
        match spans.last_mut() {
            Some((last, span)) if *last == state => span.end = ms,
            last => {
                if let Some((_, span)) = last {
                    span.end = ms;
                }
                spans.push((state, ms..ms));
            }
        }
    }
    spans
}

/// Shades the time of a state, with its name, or its letter where it is short.
fn shade(area: &Area<'_>, plot: &Plot<'_>, state: State, span: Range<i32>, palette: &Palette) -> anyhow::Result<()> {
    let Some(strength) = palette.shade(state) else { return Ok(()) };
    plot.draw(&Rectangle::new([(span.start, 0), (span.end, TOP)], palette.state.mix(strength).filled()))?;
    let (left, right) = (plot.map_coordinate(&(span.start, TOP)), plot.map_coordinate(&(span.end, TOP)));
    let name = format!("{state:?}");
    let room = (right.0 - left.0) / LETTER;
    let text = if room >= name.len() as i32 { &name[..] } else { &name[..1] };
    if room >= 1 {
        absolute(area, text, ((left.0 + right.0) / 2, left.1 + 8), HPos::Center, palette.ink)?;
    }
    Ok(())
}

fn curve(plot: &Plot<'_>, points: Vec<(i32, i32)>, color: RGBColor) -> anyhow::Result<()> {
    let last = points.last().map_or(0, |point| point.0);
    let mut outline = points.clone();
    outline.extend([(last, 0), (0, 0)]);
    plot.draw(&Polygon::new(outline, color.mix(0.18)))?;
    plot.draw(&PathElement::new(points, color.stroke_width(2)))?;
    Ok(())
}

/// A bar for each step below the axis: the part of what came then that was lost.
fn bars(area: &Area<'_>, plot: &Plot<'_>, lost: &[u64], palette: &Palette) -> anyhow::Result<()> {
    let origin = area.get_pixel_range();
    for (from, lost) in LOAD.step_by(STEP as usize).zip(lost).filter(|(_, lost)| **lost > 0) {
        let came: u64 = (from..from + STEP).map(arrivals).sum();
        let height = (BAR * *lost as i32 / came as i32).max(1);
        let [left, right] = [from, from + STEP].map(|ms| plot.map_coordinate(&(ms as i32, 0)));
        let (x, y) = (origin.0.start, origin.1.start);
        let corners = [(left.0 - x, left.1 - y + 2), (right.0 - x, right.1 - y + 2 + height)];
        area.draw(&Rectangle::new(corners, palette.lost.filled()))?;
    }
    Ok(())
}

/// A line across the plot.
fn rule(plot: &Plot<'_>, y: i32, color: RGBColor) -> anyhow::Result<()> {
    plot.draw(&PathElement::new([(0, y), (LOAD.end as i32, y)], color.stroke_width(1)))?;
    Ok(())
}

/// A word on the left of the plot.
fn label(area: &Area<'_>, plot: &Plot<'_>, y: i32, text: &str, palette: &Palette) -> anyhow::Result<()> {
    let at = plot.map_coordinate(&(0, y));
    absolute(area, text, (at.0 - 5, at.1), HPos::Right, palette.muted)
}

/// The time axis.
fn axis(area: &Area<'_>, plot: &Plot<'_>, palette: &Palette) -> anyhow::Result<()> {
    rule(plot, 0, palette.ink)?;
    label(area, plot, 0, "0", palette)?;
    for ms in (500..LOAD.end as i32).step_by(500) {
        let at = plot.map_coordinate(&(ms, 0));
        let unit = if ms == 500 { " s" } else { "" };
        let text = format!("{}{unit}", f64::from(ms) / 1_000.0);
        absolute(area, &text, (at.0, at.1 + BAR + 12), HPos::Center, palette.muted)?;
    }
    Ok(())
}

/// Writes at a point of the page, in pixels.
fn absolute(area: &Area<'_>, text: &str, at: (i32, i32), h: HPos, color: RGBColor) -> anyhow::Result<()> {
    let (x, y) = area.get_pixel_range();
    write(area, text, (at.0 - x.start, at.1 - y.start), 10.0, color, h)
}

/// A duration, in seconds or milliseconds.
fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "none".to_owned(),
        ms @ 1..1_000 => format!("{ms} ms"),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    if number < 1_000 {
        return number.to_string();
    }
    format!("{} {:03}", number / 1_000, number % 1_000)
}
