//! Reads PNG files as far as plots need it: every kind of colour and depth, but no interlacing.
//!
//! The pictures come from programs, so any bytes are either a picture within the bounds or none.
//! Checksums of chunks aren't compared: a damaged picture is one that looks damaged.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// The most pixels: 16 MiB as they are decoded.
const MOST_PIXELS: usize = 4 << 20;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A picture: its rows of pixels from top to bottom, each red, green, blue and opacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) width: usize,
    pub(super) all: Vec<[u8; 4]>,
}

/// How pixels are stored.
#[derive(Debug, Clone, Copy)]
struct Layout {
    width: usize,
    height: usize,
    /// Bits of a sample: 1, 2, 4, 8 or 16.
    depth: usize,
    color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    Gray,
    Rgb,
    Palette,
    GrayAlpha,
    Rgba,
}

impl Color {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Gray,
            2 => Self::Rgb,
            3 => Self::Palette,
            4 => Self::GrayAlpha,
            6 => Self::Rgba,
            _ => return None,
        })
    }

    fn samples(self) -> usize {
        match self {
            Self::Gray | Self::Palette => 1,
            Self::GrayAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

impl Layout {
    fn read(header: &[u8]) -> Option<Self> {
        let &[w0, w1, w2, w3, h0, h1, h2, h3, depth, color, 0, 0, 0] = header else { return None };
        let side = |bytes| usize::try_from(u32::from_be_bytes(bytes)).ok();
        let (width, height) = (side([w0, w1, w2, w3])?, side([h0, h1, h2, h3])?);
        let color = Color::of(color)?;
        let is_known = match color {
            Color::Gray => matches!(depth, 1 | 2 | 4 | 8 | 16),
            Color::Palette => matches!(depth, 1 | 2 | 4 | 8),
            _ => matches!(depth, 8 | 16),
        };
        let fits = width > 0 && height > 0 && width.checked_mul(height)? <= MOST_PIXELS;
        (is_known && fits).then_some(Self { width, height, depth: usize::from(depth), color })
    }

    /// Bytes of a row.
    fn row(&self) -> usize {
        (self.width * self.color.samples() * self.depth).div_ceil(8)
    }

    /// Bytes from a sample to the same one of the pixel before, for the filters.
    fn step(&self) -> usize {
        (self.color.samples() * self.depth / 8).max(1)
    }

    /// Returns a sample of a row, from 0 to the most that its bits can hold.
    fn sample(&self, row: &[u8], index: usize) -> u16 {
        match self.depth {
            8 => u16::from(row[index]),
            16 => u16::from_be_bytes([row[2 * index], row[2 * index + 1]]),
            depth => {
                let bit = index * depth;
                let shift = 8 - depth - bit % 8;
                u16::from(row[bit / 8] >> shift) & ((1 << depth) - 1)
            }
        }
    }

    /// Returns a sample of a row as 8 bits.
    fn level(&self, row: &[u8], index: usize) -> u8 {
        let most = (1_u32 << self.depth) - 1;
        let level = u32::from(self.sample(row, index)) * 255 / most;
        u8::try_from(level).unwrap_or(u8::MAX)
    }

    fn pixel(&self, row: &[u8], column: usize, colors: &[u8], opacities: &[u8]) -> [u8; 4] {
        let first = column * self.color.samples();
        let level = |place| self.level(row, first + place);
        match self.color {
            Color::Gray => [level(0), level(0), level(0), u8::MAX],
            Color::GrayAlpha => [level(0), level(0), level(0), level(1)],
            Color::Rgb => [level(0), level(1), level(2), u8::MAX],
            Color::Rgba => [level(0), level(1), level(2), level(3)],
            Color::Palette => {
                let entry = usize::from(self.sample(row, first));
                let color = colors.get(3 * entry..3 * entry + 3).unwrap_or(&[0; 3]);
                let opacity = opacities.get(entry).copied().unwrap_or(u8::MAX);
                [color[0], color[1], color[2], opacity]
            }
        }
    }
}

/// Returns the pixels of a PNG; `None` if it is none, is damaged or interlaced, or has more than four
/// million pixels.
pub(super) fn decode(png: &[u8]) -> Option<Pixels> {
    let mut rest = png.strip_prefix(SIGNATURE)?;
    let mut layout = None;
    let (mut colors, mut opacities, mut data): (&[u8], &[u8], Vec<&[u8]>) = (&[], &[], Vec::new());
    while let Some((kind, contents, after)) = chunk(rest) {
        match kind {
            b"IHDR" => layout = Some(Layout::read(contents)?),
            b"PLTE" => colors = contents,
            b"tRNS" => opacities = contents,
            b"IDAT" => data.push(contents),
            b"IEND" => break,
            _ => {}
        }
        rest = after;
    }
    let layout = layout?;
    let data = data.concat();
    let mut data = ZlibDecoder::new(data.as_slice());
    let (mut before, mut row) = (vec![0; layout.row()], vec![0; layout.row()]);
    let mut all = Vec::with_capacity(layout.width * layout.height);
    for _ in 0..layout.height {
        let mut filter = [0];
        data.read_exact(&mut filter).ok()?;
        data.read_exact(&mut row).ok()?;
        unfilter(filter[0], &mut row, &before, layout.step())?;
        all.extend((0..layout.width).map(|at| layout.pixel(&row, at, colors, opacities)));
        std::mem::swap(&mut before, &mut row);
    }
    Some(Pixels { width: layout.width, all })
}

/// Splits off a chunk: its type, its contents, and what follows.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (contents, rest) = rest.split_at_checked(u32::from_be_bytes(*length).try_into().ok()?)?;
    let (_checksum, rest) = rest.split_first_chunk::<4>()?;
    Some((kind, contents, rest))
}

/// Undoes the filter of a row; `None` if there is no such filter.
fn unfilter(filter: u8, row: &mut [u8], before: &[u8], step: usize) -> Option<()> {
    for at in 0..row.len() {
        let left = if at < step { 0 } else { row[at - step] };
        let corner = if at < step { 0 } else { before[at - step] };
        let predicted = match filter {
            0 => 0,
            1 => left,
            2 => before[at],
            3 => u8::midpoint(left, before[at]),
            4 => nearest(left, before[at], corner),
            _ => return None,
        };
        row[at] = row[at].wrapping_add(predicted);
    }
    Some(())
}

/// The predictor of the fourth filter: whichever of the three is nearest to their estimate.
fn nearest(left: u8, above: u8, corner: u8) -> u8 {
    let estimate = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |value: u8| (estimate - i16::from(value)).abs();
    let candidates = [left, above, corner];
    // The first of those that are equally near.
    candidates.into_iter().min_by_key(|&value| distance(value)).unwrap_or(left)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    /// Returns a PNG whose rows, with their filters, are these.
    fn png(
        (width, height): (u32, u32),
        (depth, color): (u8, u8),
        rows: &[u8],
        more: &[(&[u8; 4], &[u8])],
    ) -> Vec<u8> {
        let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
        header.extend([depth, color, 0, 0, 0]);
        let mut data = ZlibEncoder::new(Vec::new(), Compression::fast());
        data.write_all(rows).unwrap();
        let data = data.finish().unwrap();
        let (first, second) = data.split_at(data.len() / 2);
        let mut png = SIGNATURE.to_vec();
        let mut put = |kind: &[u8], contents: &[u8]| {
            png.extend(u32::try_from(contents.len()).unwrap().to_be_bytes());
            png.extend([kind, contents, &[0; 4]].concat());
        };
        put(b"IHDR", &header);
        more.iter().for_each(|(kind, contents)| put(*kind, contents));
        put(b"IDAT", first);
        put(b"IDAT", second);
        put(b"IEND", &[]);
        png
    }

    #[test]
    fn pixels_of_each_kind_are_read() {
        let all = |png: &[u8]| decode(png).unwrap().all;
        let rgba = png((1, 2), (8, 6), &[0, 1, 2, 3, 4, 0, 5, 6, 7, 8], &[]);
        assert_eq!(
            decode(&rgba).unwrap(),
            Pixels { width: 1, all: vec![[1, 2, 3, 4], [5, 6, 7, 8]] }
        );
        assert_eq!(all(&png((1, 1), (8, 2), &[0, 1, 2, 3], &[])), [[1, 2, 3, 255]]);
        assert_eq!(all(&png((1, 1), (16, 4), &[0, 9, 0, 128, 0], &[])), [[8, 8, 8, 127]]);
        let bits = png((3, 1), (1, 0), &[0, 0b1010_0000], &[]);
        assert_eq!(levels(&bits), [255, 0, 255]);
        let palette: [(&[u8; 4], &[u8]); 2] = [(b"PLTE", &[1, 2, 3, 4, 5, 6]), (b"tRNS", &[0])];
        let indexed = png((3, 1), (2, 3), &[0, 0b0001_1100], &palette);
        assert_eq!(all(&indexed), [[1, 2, 3, 0], [4, 5, 6, 255], [0, 0, 0, 255]]);
    }

    /// Returns the red of each pixel.
    fn levels(png: &[u8]) -> Vec<u8> {
        decode(png).unwrap().all.iter().map(|pixel| pixel[0]).collect()
    }

    #[test]
    fn filters_are_undone() {
        // Each row of gray pixels is 10, 20, 30, by another filter.
        let rows = [[0, 10, 20, 30], [1, 10, 10, 10], [2, 0, 0, 0], [3, 5, 5, 5], [4, 0, 0, 0]];
        assert_eq!(levels(&png((3, 5), (8, 0), rows.as_flattened(), &[])), [10, 20, 30].repeat(5));
        assert_eq!((nearest(1, 9, 1), nearest(9, 1, 1), nearest(5, 5, 9)), (9, 9, 5));
        assert_eq!(decode(&png((3, 1), (8, 0), &[5, 0, 0, 0], &[])), None);
    }

    #[test]
    fn what_is_no_picture_or_too_large_is_refused() {
        let good = png((2, 2), (8, 0), &[0, 1, 2, 0, 3, 4], &[]);
        assert!(decode(&good).is_some());
        for cut in 0..good.len() - 20 {
            assert_eq!(decode(&good[..cut]), None, "{cut}");
        }
        for (size, kind) in
            [((0, 1), (8, 0)), ((3000, 3000), (8, 0)), ((1, 1), (3, 0)), ((1, 1), (8, 5))]
        {
            assert_eq!(decode(&png(size, kind, &[0; 9], &[])), None, "{size:?} {kind:?}");
        }
        // Any change gives a picture or none.
        for at in 0..good.len() {
            for value in [0, 1, 3, 16, 255] {
                let mut changed = good.clone();
                changed[at] = value;
                let _ = decode(&changed);
            }
        }
    }
}
