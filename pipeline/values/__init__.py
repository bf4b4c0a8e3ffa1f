"""Values with a schema as columns: Avro, Protobuf and JSON of a schema registry.

Owns Arrow types and conversions of values; Spark's functions over them are in
`pipeline.spark.values`. `client.serde` reads the schemas. Knows no topics and no Spark.
"""
