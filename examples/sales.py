# /// script
# [tool.hatchery]
# inputs = ["data/sales.csv"]
# ///
"""Half a year of sales: totals by region and month on standard output, the details in a workbook."""

import pandas as pd

sales = pd.read_csv("data/sales.csv", parse_dates=["date"])
sales["revenue"] = sales["units"] * sales["unit_price"]
sales["month"] = sales["date"].dt.strftime("%Y-%m")

by_region = sales.pivot_table(
    index="region", columns="month", values="revenue", aggfunc="sum", margins=True, margins_name="all"
)
by_product = (
    sales.groupby("product")
    .agg(units=("units", "sum"), revenue=("revenue", "sum"), orders=("units", "count"))
    .sort_values("revenue", ascending=False)
)

print(by_region.round(0).astype(int).to_string())
print()
print(by_product.to_string(float_format="{:,.2f}".format))

with pd.ExcelWriter("sales.xlsx") as workbook:
    by_region.to_excel(workbook, sheet_name="regions")
    by_product.to_excel(workbook, sheet_name="products")
